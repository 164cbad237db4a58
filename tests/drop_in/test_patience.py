"""How long ranks wait for one another, and for whom they do not wait."""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

import pytest
import torch.distributed as dist

import rankdrill
from rankdrill.errors import PeerLost, UsageError
from rankdrill.gathers import all_gather
from rankdrill.gathers.agreement.patience import TIMEOUT_VARIABLE
from rankdrill.gathers.agreement.registry import channel_of
from tests.gathers.attempts import attempt

SHORT_S, LONG_S = 2.0, 60.0
THE_END = "the end of this rank"


def seconds(began: float) -> float:
    return time.monotonic() - began


def test_by_default_as_long_as_the_group_does() -> None:
    def body() -> Any:
        group = dist.new_group(timeout=datetime.timedelta(seconds=SHORT_S))
        patient = dist.new_group(timeout=datetime.timedelta(seconds=LONG_S))
        began = time.monotonic()
        if dist.get_rank() == 1:
            time.sleep(2 * SHORT_S)
        arrived = all_gather(dist.get_rank(), group=patient)
        lost = attempt(all_gather, 0, group=group) if dist.get_rank() == 0 else None
        return arrived, lost, seconds(began), channel_of(patient).timeout_s

    with rankdrill.World(2) as world:
        first, other = world.run(body, deadline=LONG_S).unwrap()
    assert first[0] == other[0] == [0, 1]
    assert first[1].kind == "PeerLost"
    assert 2 * SHORT_S <= first[2] < LONG_S / 2
    assert first[3] == LONG_S


def test_the_environment_is_asked_before_the_group_and_after_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, str(SHORT_S))

    def body() -> Any:
        group = dist.new_group(timeout=datetime.timedelta(seconds=LONG_S))
        began = time.monotonic()
        if dist.get_rank() == 1:
            time.sleep(2 * SHORT_S)
        arrived = all_gather(dist.get_rank(), group=group, timeout=LONG_S)
        asked = time.monotonic()
        lost = attempt(all_gather, 0, group=group) if dist.get_rank() == 0 else None
        return arrived, lost, asked - began, seconds(asked)

    with rankdrill.World(2) as world:
        arrived, lost, before, after = world.run(body, deadline=LONG_S).unwrap()[0]
    assert arrived == [0, 1]
    assert lost.kind == "PeerLost"
    assert before >= 2 * SHORT_S
    assert after < LONG_S / 2


@pytest.mark.parametrize("said", ["soon", "-1", "0", "nan", "inf"])
def test_a_time_that_is_none_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, said)
    with pytest.raises(UsageError, match=f"{TIMEOUT_VARIABLE}={said}: give a positive number of seconds"):
        all_gather(1)


def test_a_rank_that_is_gone_before_the_first_gather_is_not_waited_for() -> None:
    def body() -> Any:
        group = dist.new_group(timeout=datetime.timedelta(seconds=LONG_S))
        dist.barrier()
        if dist.get_rank() == 1:
            os.stat(THE_END)
        began = time.monotonic()
        with pytest.raises(PeerLost) as lost:
            all_gather(0, group=group)
        return lost.value.ranks, str(lost.value), seconds(began)

    with rankdrill.World(3, contracts=False) as world:
        plan = rankdrill.Plan.parse(f'rank 1: exit before file.stat on "{THE_END}"')
        outcome = world.run(body, plan=plan, deadline=LONG_S)
    for rank in (0, 2):
        ranks, text, took = outcome.ranks[rank].value
        assert ranks == (1,)
        assert "its process ended, or left the group (nobody listens at 127.0.0.1 port" in text
        assert took < LONG_S / 4


def test_a_rank_that_has_left_the_group_is_not_waited_for() -> None:
    def body() -> Any:
        group = dist.new_group(timeout=datetime.timedelta(seconds=LONG_S))
        dist.barrier()
        if dist.get_rank() == 1:
            dist.destroy_process_group(group)
            return None
        began = time.monotonic()
        lost = attempt(all_gather, 0, group=group)
        return lost.ranks, lost.text, seconds(began)

    with rankdrill.World(3, contracts=False) as world:
        outcome = world.run(body, deadline=LONG_S)
    for rank in (0, 2):
        ranks, text, took = outcome.ranks[rank].value
        assert ranks == (1,)
        assert "left the group" in text
        assert took < LONG_S / 4
