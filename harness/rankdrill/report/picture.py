"""What a page or a trace shows of a run: its verdict, and of each rank how it ended and the steps that it took."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis import Finding
from rankdrill.ledger import Record
from rankdrill.worlds import Outcome, RankOutcome
from rankdrill.worlds.told import Block, told_of

__all__ = ["MOST_STEPS", "Lane", "Picture", "Stack", "picture_of"]

MOST_STEPS = 40_000  # of all ranks together: a page that has more takes a browser seconds to open
LEAST_STEPS = 24  # of each rank, however many ranks there are
MOST_STACKS = 32
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclass(frozen=True)
class Lane:
    """One rank: how it ended, in words that follow ``rank 2``, whom it waits for, and its newest steps.

    `role` is ``culprit``, ``victim`` or empty. `dropped` counts steps that are not shown.
    """

    rank: int
    status: str
    told: str
    role: str = ""
    waits_for: tuple[int, ...] = ()
    records: tuple[Record, ...] = ()
    dropped: int = 0


@dataclass(frozen=True)
class Stack:
    """What ranks were doing, where all of them were at the same lines."""

    ranks: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Picture:
    """A run to look at. `headline` is the verdict in a sentence, `blocks` what else is to be said of it, `findings` is
    what it rests on, `repeat` the command that runs it again; `elapsed` is in seconds.

    `notes` say how its times are to be read. Where they are those at which calls were `issued`, nobody knows when these
    ended. Where ranks have not `ended`, that is where they were seen last.
    """

    title: str
    ok: bool
    headline: str
    lanes: tuple[Lane, ...]
    blocks: tuple[Block, ...] = ()
    findings: tuple[Finding, ...] = ()
    stacks: tuple[Stack, ...] = ()
    repeat: str = ""
    elapsed: float = 0.0
    notes: tuple[str, ...] = ()
    issued: bool = False
    ended: bool = True

    def is_at_fault(self, lane: Lane, record: Record) -> bool:
        """Whether `record` is the call of a finding that `lane`'s rank is a culprit of."""
        return any(lane.rank in finding.ranks and _is_of(record, finding) for finding in self.findings)

    def is_of_finding(self, record: Record) -> bool:
        """Whether `record` is the call that a finding is about."""
        return any(_is_of(record, finding) for finding in self.findings)


def picture_of(outcome: Outcome, title: str, repeat: str) -> Picture:
    """The picture of `outcome`."""
    told = None if outcome.ok else told_of(outcome, {})
    each = max(LEAST_STEPS, MOST_STEPS // max(1, len(outcome.ranks)))
    fields = outcome.as_fields()["ranks"]
    lanes = (_lane(outcome, rank, its["told"], each) for rank, its in zip(outcome.ranks, fields, strict=True))
    return Picture(
        title,
        outcome.ok,
        outcome.summary() if told is None else told.headline,
        tuple(lanes),
        () if told is None else (*told.blocks, *(Block(line) for line in told.victims)),
        outcome.findings,
        tuple(stacks_of((rank.rank, rank.stack) for rank in culprits_first(outcome))),
        repeat,
        outcome.elapsed,
    )


def culprits_first(outcome: Outcome) -> list[RankOutcome]:
    """The ranks, those at fault before the others."""
    return sorted(outcome.ranks, key=lambda rank: rank.rank not in outcome.culprits)


def stacks_of(told: Iterable[tuple[int, str]]) -> Iterable[Stack]:
    """Ranks whose stacks differ in nothing but addresses share one."""
    alike: dict[str, list[int]] = {}
    shown: dict[str, str] = {}
    for rank, text in told:
        if text.strip():
            places = _ADDRESS.sub("", text)
            alike.setdefault(places, []).append(rank)
            shown.setdefault(places, text)
    for places, ranks in list(alike.items())[:MOST_STACKS]:
        yield Stack(tuple(ranks), shown[places])


def _lane(outcome: Outcome, rank: RankOutcome, told: str, most: int) -> Lane:
    role = "culprit" if rank.rank in outcome.culprits else "victim" if rank.rank in outcome.victims else ""
    return Lane(
        rank.rank,
        str(rank.status),
        told.removeprefix(f"rank {rank.rank} "),
        role,
        rank.wait.missing if rank.wait is not None else (),
        *newest(rank.ledger.records, most, rank.ledger.dropped),
    )


def newest(records: Sequence[Record], most: int, dropped: int = 0) -> tuple[tuple[Record, ...], int]:
    """The last `most` of `records`, and how many there were besides, with those `dropped` before."""
    left_out = max(0, len(records) - most)
    return tuple(records[left_out:]), dropped + left_out


def _is_of(record: Record, finding: Finding) -> bool:
    return (record.step.target, record.step.sequence) == (finding.group, finding.number)
