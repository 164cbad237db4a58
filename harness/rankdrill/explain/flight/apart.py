"""Where the ranks of a group meet in one call and do not do the same there: the first such place of each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rankdrill.diagnosis import Finding, FindingKind, Side
from rankdrill.diagnosis.calls.contracts import break_in
from rankdrill.diagnosis.calls.sequences import Parting, left_out_by_custom, left_out_by_one_side, parting
from rankdrill.diagnosis.finding import side_of
from rankdrill.explain.flight.agreed import post_of
from rankdrill.explain.flight.job import Job
from rankdrill.step import Step

_Array = npt.NDArray[Any]

__all__ = ["Apart", "calls_up_to", "disagreements", "from_one_start", "parted_side"]

_BEHIND = 64  # calls behind the place where it shows that are laid side by side too
_MOST_COMPARED = 8  # culprits whose sequences are looked at


@dataclass(frozen=True)
class Apart:
    """That ranks disagree on call `seq` of `group`: what is wrong, since when, and in which rows it shows.

    `by_custom` says that no majority tells who is at fault, and what the ranks did in the rounds before does.
    """

    finding: Finding
    group: int
    seq: int
    since_ns: int
    rows: tuple[int, ...]
    by_custom: bool = False


def disagreements(job: Job) -> list[Apart]:
    """The first disagreement of each group, the earliest first."""
    found = [apart for rows in _first_of_groups(job) if (apart := _apart(job, rows)) is not None]
    return sorted(found, key=lambda each: (each.since_ns, each.group))


def _first_of_groups(job: Job) -> Iterator[_Array]:
    """Of each group the rows of the first call in which they differ."""
    collective = np.flatnonzero(~job.rows["p2p"])
    if not len(collective):
        return
    group, seq, rank = (job.rows[name][collective] for name in ("group", "seq", "rank"))
    order = np.lexsort((rank, seq, group))  # stable: the parts of a coalesced call, of one number, keep their order
    turn = _turns(group[order], seq[order], rank[order])
    if turn.any():
        again = np.lexsort((turn, seq[order], group[order]))
        order, turn = order[again], turn[again]
    rows = collective[order]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(group[order]) != 0) | (np.diff(seq[order]) != 0) | (np.diff(turn) != 0)
    starts = np.flatnonzero(new)
    agreed = job.agreed[rows]
    differ = np.flatnonzero(np.minimum.reduceat(agreed, starts) != np.maximum.reduceat(agreed, starts))
    seen: set[int] = set()
    ends = np.append(starts[1:], len(rows))
    for place in differ.tolist():
        first, end = int(starts[place]), int(ends[place])
        of = int(job.rows["group"][rows[first]])
        if of not in seen:
            seen.add(of)
            yield rows[first:end]


def _turns(group: npt.NDArray[np.int32], seq: _Array, rank: npt.NDArray[np.int32]) -> _Array:
    """Which of a rank's entries of one number each is, from 0; rows of one rank are neighbours."""
    new = np.ones(len(rank), np.bool_)
    new[1:] = (np.diff(group) != 0) | (np.diff(seq) != 0) | (np.diff(rank) != 0)
    starts = np.flatnonzero(new)
    return np.arange(len(rank)) - np.repeat(starts, np.diff(np.append(starts, len(rank))))


def _apart(job: Job, rows: _Array) -> Apart | None:
    listed = [int(row) for row in rows]
    group, seq = int(job.rows["group"][listed[0]]), int(job.rows["seq"][listed[0]])
    posts = [post_of(int(job.rows["rank"][row]), job.call_at(row), job.site_at(row)) for row in listed]
    found = break_in(posts, job.groups[group].members, job.groups[group].label, seq)
    if found is None:  # it compares checksums: nothing that one could come by without wanting to
        return None
    found, by_custom = _traced_back(found, job, group, seq)
    since = int(job.rows["created"][listed].min())
    return Apart(found, group, seq, since, tuple(listed), by_custom)


def _traced_back(finding: Finding, job: Job, group: int, seq: int) -> tuple[Finding, bool]:
    """`finding` with the place where the culprits' calls part from the others', if that can be told."""
    others = [rank for side in finding.sides for rank in side.ranks if rank not in finding.culprits]
    if not finding.culprits:
        found = _by_custom(finding, job, group, seq)
        return (_told(finding, *found), True) if found is not None else (finding, False)
    theirs = calls_up_to(job, min(others), group, seq + _BEHIND)
    parted = [
        _parting(theirs, calls_up_to(job, rank, group, seq + _BEHIND), seq)
        for rank in finding.culprits[:_MOST_COMPARED]
    ]
    first = parted[0]
    if first is None or any(one is None or _key(one) != _key(first) for one in parted):
        return finding, False
    return _told(finding, finding.culprits, first), False


def _parting(theirs: Sequence[Step], mine: Sequence[Step], seq: int) -> Parting | None:
    one, other = from_one_start(theirs, mine)
    found = parting(one, other, complete=False, by_source=False)
    if found is None:  # what lies behind may hide what the ranks used to do before
        one, other = ([step for step in steps if step.sequence <= seq] for steps in (one, other))
        found = left_out_by_custom(one, other) if one and other else None
    return found if found is None or found.call.sequence <= seq else None


def _by_custom(finding: Finding, job: Job, group: int, seq: int) -> tuple[tuple[int, ...], Parting] | None:
    """The side that left out what it used to call there, if that can be said of one of two sides."""
    if len(finding.sides) != 2:
        return None
    one, other = (calls_up_to(job, side.ranks[0], group, seq) for side in finding.sides)
    return left_out_by_one_side([side.ranks for side in finding.sides], *from_one_start(one, other))


def _told(finding: Finding, culprits: tuple[int, ...], parted: Parting) -> Finding:
    here = parted.kind is FindingKind.EXTRA and parted.call.sequence == finding.number  # which is told then
    rest = [side for side in finding.sides if not here or not set(side.ranks) <= set(culprits)]
    rest.sort(key=lambda side: not set(side.ranks) <= set(culprits))
    sides = (parted_side(culprits, parted), *rest)
    return replace(finding, kind=parted.kind, step=parted.call.call, argument="", sides=sides, culprits=culprits)


def parted_side(ranks: Sequence[int], parted: Parting) -> Side:
    """What `ranks` did where they parted from the others."""
    one = len(ranks) == 1
    if parted.kind is FindingKind.MISSING:
        did = f"{'leaves' if one else 'leave'} out {parted.call.call}"
    else:
        did = f"{'makes' if one else 'make'} one call more, {parted.call.call}"
    return side_of(ranks, did, [parted.call.site] * len(ranks))


def _key(found: Parting) -> object:
    return found.kind, found.call.sequence, found.call.op, found.call.site


def calls_up_to(job: Job, rank: int, group: int, seq: int) -> list[Step]:
    """The calls of `rank` on `group` up to number `seq`, in order."""
    rows = job.rows_of(rank, group)
    return [job.step_at(int(row)) for row in rows[job.rows["seq"][rows] <= seq]]


def from_one_start(one: Sequence[Step], other: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Both from the first call that both rings still hold."""
    first = max(min((step.sequence for step in steps), default=0) for steps in (one, other))
    mine, theirs = ([step for step in steps if step.sequence >= first] for steps in (one, other))
    return mine, theirs
