"""Ranks that leave by destroying their group close their connections: what the others are told of is not the cause."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 60.0
BATCHES = 4


def sends_one_less() -> None:
    for _ in range(BATCHES - (dist.get_rank() == 0)):
        if dist.get_rank() == 0:
            dist.send(torch.ones(3), dst=1)
        else:
            dist.recv(torch.ones(3), src=0)
    dist.destroy_process_group()


def receives_one_less() -> None:
    for _ in range(BATCHES - (dist.get_rank() == 1)):
        if dist.get_rank() == 0:
            dist.send(torch.ones(1 << 16), dst=1)
        else:
            dist.recv(torch.ones(1 << 16), src=0)
    dist.destroy_process_group()


def leaves_later() -> None:
    for _ in range(BATCHES - (dist.get_rank() == 0)):
        if dist.get_rank() == 0:
            dist.send(torch.ones(3), dst=1)
        else:
            dist.recv(torch.ones(3), src=0)
    time.sleep(0.5)
    dist.destroy_process_group()


@pytest.mark.parametrize("body", [sends_one_less, receives_one_less, leaves_later])
def test_a_message_that_was_left_out(body: Callable[[], None]) -> None:
    with World(2) as two:
        outcome = two.run(body, deadline=DEADLINE_S)
    (found,) = outcome.findings
    assert found.kind is FindingKind.UNMATCHED, outcome.summary()
    assert set(found.ranks) == {0, 1}
    assert f"message #{BATCHES - 1}" in str(found)


def leaves_out_the_last() -> None:
    for step in range(BATCHES):
        if (dist.get_rank(), step) != (2, BATCHES - 1):
            dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()


def test_a_call_that_was_left_out() -> None:
    with World(4) as four:
        outcome = four.run(leaves_out_the_last, deadline=DEADLINE_S)
    (found,) = outcome.findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (2,)), outcome.summary()


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


def did_all_that_was_to_do() -> None:
    """Sent, and gone before it was received: nothing was left out."""
    if dist.get_rank() == 0:
        dist.send(torch.ones(3), dst=1)
    else:
        dist.recv(torch.ones(3), src=0)
    dist.destroy_process_group()


def test_who_has_left_nothing_out_is_not_accused_of_it() -> None:
    with World(2) as two:
        outcome = two.run(did_all_that_was_to_do, deadline=DEADLINE_S)
    assert not any(found.kind is FindingKind.UNMATCHED for found in outcome.findings), outcome.summary()
