"""Ranks that leave by destroying their group close their connections: what the others are told of is not the cause."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 60.0
STEPS = 4
MANY = 1 << 16  # which gloo does not send before it is received


def exchange(sent: int, received: int, pause_s: float) -> None:
    for _ in range(sent if dist.get_rank() == 0 else received):
        if dist.get_rank() == 0:
            dist.send(torch.ones(MANY), dst=1)
        else:
            dist.recv(torch.ones(MANY), src=0)
    time.sleep(pause_s)
    dist.destroy_process_group()


@pytest.mark.parametrize(("sent", "received", "pause_s"), [(3, 4, 0), (4, 3, 0), (3, 4, 0.5)])
def test_a_message_that_was_left_out(sent: int, received: int, pause_s: float) -> None:
    with World(2) as two:
        outcome = two.run(exchange, sent, received, pause_s, deadline=DEADLINE_S)
    (found,) = outcome.findings
    assert found.kind is FindingKind.UNMATCHED, outcome.summary()
    assert set(found.ranks) == {0, 1}
    assert "message #3" in str(found)


def test_who_has_left_nothing_out_is_not_accused_of_it() -> None:
    """What was sent may not have been received when its sender leaves."""
    with World(2) as two:
        outcome = two.run(exchange, 4, 4, 0, deadline=DEADLINE_S)
    assert not any(found.kind is FindingKind.UNMATCHED for found in outcome.findings), outcome.summary()


def leaves_out_the_last() -> None:
    for step in range(STEPS):
        if (dist.get_rank(), step) != (2, STEPS - 1):
            dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()


def test_a_call_that_was_left_out() -> None:
    with World(4) as four:
        outcome = four.run(leaves_out_the_last, deadline=DEADLINE_S)
    (found,) = outcome.findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (2,)), outcome.summary()


def leaves_by_a_code() -> None:
    sys.exit(1)


def raises_its_own() -> None:
    raise KeyError("training failed")


def raises_its_own_alone() -> None:
    raise KeyError("training failed") from None


@pytest.mark.parametrize("handles", [leaves_by_a_code, raises_its_own, raises_its_own_alone])
@pytest.mark.parametrize("ranks", [2, 3])
def test_who_fails_over_it_in_his_own_words_is_a_victim(ranks: int, handles: Callable[[], None]) -> None:
    def body() -> None:
        try:
            for _ in range(STEPS - (dist.get_rank() == 0)):
                dist.all_reduce(torch.ones(2))
            dist.destroy_process_group()
        except Exception:
            handles()

    with World(ranks) as world:
        outcome = world.run(body, deadline=DEADLINE_S)
    (found,) = outcome.findings
    assert found.kind is FindingKind.MISSING, outcome.summary()
    assert found.culprits == ((0,) if ranks > 2 else ())
    assert found.sides[0].ranks == (0,)


def test_what_a_rank_does_wrong_by_itself_is_its_own_also_where_another_error_was_handled(two: World) -> None:
    def body() -> None:
        try:
            raise TimeoutError("the storage is slow")
        except TimeoutError:
            if dist.get_rank() == 1:
                raise KeyError("no such sample") from None
        dist.barrier()

    outcome = two.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (1,)
    assert isinstance(outcome.ranks[1].error, KeyError)
    assert isinstance(outcome.ranks[1].error.__context__, TimeoutError)


def has_trouble_beside() -> None:
    if dist.get_rank() == 0:
        raise KeyError("trouble")
    if dist.get_rank() == 1:
        dist.destroy_process_group()
    else:
        dist.recv(torch.ones(3), src=1)


def test_an_error_of_a_ranks_own_comes_first() -> None:
    with World(3) as three:
        outcome = three.run(has_trouble_beside, deadline=DEADLINE_S)
    assert not outcome.findings
    assert outcome.culprits[0] == 0
