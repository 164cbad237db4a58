"""The wait-for graph: which ranks wait for which, and which of them wait for ever.

A rank inside collective *s* of a group waits for every member that has not reached *s*. A member that has returned,
raised or died will never come; whoever waits for one that will never come, or sits in a cycle of waits, will never
come either. So most hangs are certain long before any timeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rankdrill.ledger import LedgerView, Record
from rankdrill.step import NO_SEQUENCE, Kind

__all__ = ["GROUP_OP", "Position", "Wait", "doomed", "position", "waits"]

GROUP_OP = "group"  # the record that says which global ranks a process group has
_PEER = re.compile(r"\bpeer=(\d+)")


@dataclass(frozen=True)
class Position:
    """Where one rank is: ended, or in step `at` if it waits there for others, or running.

    `reached` counts the collectives the rank has entered in each group; `groups` maps the groups it has used
    to their members' global ranks.
    """

    ended: bool
    at: Record | None = None
    reached: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """Rank `rank` waits in `record` for the ranks `missing`, which have not reached it."""

    rank: int
    record: Record
    missing: tuple[int, ...]

    def __str__(self) -> str:
        if not self.missing:
            return f"is in {self.record.step}, which every rank has reached"
        for_whom = (
            f"rank {self.missing[0]}"
            if len(self.missing) == 1
            else f"ranks {', '.join(map(str, self.missing))}"
        )
        return f"waits in {self.record.step} for {for_whom}"


def position(
    view: LedgerView, *, ended: bool, entered: Callable[[Record], bool] = lambda record: True
) -> Position:
    """Read a rank's position from its ledger; `entered` says of a record whether the collective was really issued."""
    reached: dict[str, int] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for record in view:
        step = record.step
        if step.kind is not Kind.COLLECTIVE:
            continue
        if step.op == GROUP_OP:
            groups[step.target] = parse_ranks(step.fingerprint)
        elif step.sequence != NO_SEQUENCE and entered(record):
            reached[step.target] = max(reached.get(step.target, 0), step.sequence + 1)
    last = view.last
    waiting = last is not None and last.state.open and last.step.kind is Kind.COLLECTIVE and not ended
    return Position(ended, last if waiting else None, reached, groups)


def doomed(positions: Sequence[Position]) -> dict[int, Wait]:
    """The ranks that will wait for ever, each with what it waits for; `positions` is by global rank.

    A rank that runs may still come. A waiting rank comes if all whom it waits for come. The least set closed
    under this is who can go on; everybody else who waits is doomed.
    """
    waiting = waits(positions)
    able = {rank for rank, at in enumerate(positions) if not at.ended and rank not in waiting}
    grew = True
    while grew:
        coming = {rank for rank, wait in waiting.items() if rank not in able and set(wait.missing) <= able}
        able |= coming
        grew = bool(coming)
    return {rank: wait for rank, wait in waiting.items() if rank not in able}


def waits(positions: Sequence[Position]) -> dict[int, Wait]:
    """What each rank that waits in a collective waits for; nobody, if all have reached it."""
    return {rank: _wait(rank, at, positions) for rank, at in enumerate(positions) if at.at is not None}


def _wait(rank: int, here: Position, positions: Sequence[Position]) -> Wait:
    assert here.at is not None
    step = here.at.step
    if step.sequence == NO_SEQUENCE:
        peer = _PEER.search(step.fingerprint)
        return Wait(rank, here.at, (int(peer[1]),) if peer and int(peer[1]) < len(positions) else ())
    members = here.groups.get(step.target, range(len(positions)))
    behind = tuple(
        member
        for member in members
        if member != rank and positions[member].reached.get(step.target, 0) <= step.sequence
    )
    return Wait(rank, here.at, behind)


def parse_ranks(text: str) -> tuple[int, ...]:
    """``ranks=0,2-4`` → ``(0, 2, 3, 4)``."""
    ranks: list[int] = []
    for part in text.removeprefix("ranks=").split(","):
        low, _, high = part.partition("-")
        if low.isdigit():
            ranks.extend(range(int(low), int(high or low) + 1))
    return tuple(ranks)
