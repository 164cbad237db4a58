"""A key whose numbers follow from the rank that sets it: who has set another one is to blame, and not who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

DEADLINE_S = 60.0
Body = Callable[[RankContext], None]


@pytest.fixture
def three() -> Iterator[World]:
    with World(3) as made:
        yield made


def a_letter_to_the_left(rank: RankContext) -> None:
    """All write to the next one, and rank 1 writes to the one before."""
    to = (rank.index + (1 if rank.index != 1 else -1)) % 3
    rank.store.set(f"letters/{rank.index}/{to}", "…")
    rank.store.get(f"letters/{(rank.index - 1) % 3}/{rank.index}")
    dist.barrier()


def a_round_ahead(rank: RankContext) -> None:
    """Of the second round rank 2 sets the key of the third."""
    for step in range(2):
        said = step + (rank.index == 2 and step == 1)
        rank.store.set(f"round{said}-from{rank.index}-for{(rank.index + 1) % 3}", "…")
        rank.store.get(f"round{step}-from{(rank.index + 2) % 3}-for{rank.index}")


def for_nobody(rank: RankContext) -> None:
    """Rank 0 names its own number for the next one's."""
    rank.store.set(f"to/{rank.index if rank.index == 0 else (rank.index + 1) % 3}", "…")
    rank.store.wait([f"to/{rank.index}"])


def enter(store: Any, r: int) -> None:
    if r:
        store.get(f"turn/{r}")


def leave(store: Any, r: int) -> None:
    store.set(f"turn/{r + 1}", "open")


def with_rows(store: Any, r: int, rows: list[int]) -> None:
    enter(store, r)
    if rows:
        leave(store, r)


def its_turn_goes_to_nobody(rank: RankContext) -> None:
    r = dist.get_rank()
    with_rows(rank.store, r, [] if r == 1 else [1])
    dist.barrier()


def found(world: World, body: Body) -> Finding:
    (finding,) = world.run_job(Job(body, with_context=True), deadline=DEADLINE_S).findings
    return finding


@pytest.mark.parametrize(("body", "culprit"), [(a_letter_to_the_left, 1), (a_round_ahead, 2), (for_nobody, 0)])
def test_who_has_set_another_key_is_to_blame(three: World, body: Body, culprit: int) -> None:
    finding = found(three, body)
    assert (finding.kind, finding.culprits) == ("missing key", (culprit,))
    assert "has set" in str(finding.sides[0])


def test_who_has_set_none_is_told_by_what_functions_are_given(three: World) -> None:
    """Two ranks say too little by themselves; what the functions are given, by one name all over, is the rank."""
    finding = found(three, its_turn_goes_to_nobody)
    assert (finding.kind, finding.culprits) == ("missing key", (1,))
    assert "has not set 'turn/2' as others have theirs" in str(finding.sides[0])


def reads_from_the_wrong_side(rank: RankContext) -> None:
    """All have set what they should, and rank 1 waits for what nobody was to set."""
    rank.store.set(f"letters/{rank.index}/{(rank.index + 1) % 3}", "…")
    step = -1 if rank.index != 1 else 1
    rank.store.get(f"letters/{(rank.index + step) % 3}/{rank.index}")


def test_who_waits_for_what_was_nobodys_is_not_taken_for_one_that_is_let_down(three: World) -> None:
    finding = found(three, reads_from_the_wrong_side)
    assert (finding.kind, 1 in finding.ranks) == ("missing key", True)
    assert finding.culprits in ((), (1,))
