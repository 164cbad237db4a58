"""Worlds of a thousand ranks: who is at fault is found among them."""

from __future__ import annotations

from rankdrill.diagnosis import Position, doomed, waits
from rankdrill.ledger import Record, State
from tests.worlds.ended import barrier

RANKS, ODD = 1024, 517


def waiting(sequence: int, group: str = "default", *members: int, **reached: int) -> Position:
    record = Record(0, barrier(sequence, group), State.WAITING, 0, 0, 0, None, "")
    return Position(False, record, {group: sequence + 1, **reached}, {group: members} if members else {})


def test_of_1024_the_one_that_has_ended_is_waited_for() -> None:
    positions = [waiting(3)] * RANKS
    positions[ODD] = Position(ended=True, reached={"default": 3})
    found = doomed(positions)
    assert sorted(found) == [rank for rank in range(RANKS) if rank != ODD]
    assert {wait.missing for wait in found.values()} == {(ODD,)}


def test_of_1024_one_that_runs_may_still_come() -> None:
    positions = [waiting(3)] * RANKS
    positions[ODD] = Position(ended=False, reached={"default": 3})
    assert {wait.missing for wait in waits(positions).values()} == {(ODD,)}
    assert doomed(positions) == {}


def test_of_1024_in_pairs_those_of_one_pair_alone_wait_for_ever() -> None:
    """Each pair is a group of its own."""
    positions = [waiting(0, f"pair {rank // 2}", rank - rank % 2, rank - rank % 2 + 1) for rank in range(RANKS)]
    assert doomed(positions) == {}
    positions[ODD] = Position(ended=True)
    assert list(doomed(positions)) == [ODD - 1]
