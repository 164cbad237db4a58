"""A job of which there are dumps as a picture: when its ranks issued their calls, and which of them were not over.

Dumps tell no end of a call, and each rank's times are by the clock of its own host. Ranks issue the calls of one number
at about the same time, unless one is late: so clocks that are seconds apart show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from rankdrill.diagnosis import name_ranks
from rankdrill.explain.flight.explained import Read
from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.waiting import Meeting
from rankdrill.explain.pictured import Left, most_steps, pictured
from rankdrill.ledger import Record, State
from rankdrill.report import Picture
from rankdrill.step import NO_SEQUENCE, Kind, Message, Site, Step

__all__ = ["picture_of_dumps", "shifts_in"]

CLOSE_NS = 5_000_000_000  # clocks that differ by less are left as they are: a rank may as well be late
FEW = 3  # calls in common, at least, by which clocks are compared
SECOND_NS = 1_000_000_000
MARGIN = 512  # entries beside those that are shown, among which a cause may be
MOST_HOSTS = 4  # that are told one by one
_ISSUED = (
    "Dumps say when a call was issued, and not when it ended: a mark stands where it was issued, and a bar that goes "
    "to the end is of a call that was not over."
)
_STACKS = (
    "Stacks are those with which calls were made, as far as they are the user's own lines: dumps have no others. Where "
    "a rank that is in no call was is not known."
)
_CLOCKS = (
    "Each rank's times are by the clock of its own host, and nothing in dumps brings these together: from rank to rank "
    "they may be wrong by as much as the clocks were."
)


def picture_of_dumps(read: Read, repeat: str, stacks: Mapping[int, str] | None = None) -> Picture:
    """The picture of what became of a job; `repeat` is the command to be told, `stacks` are the ranks', if known."""
    job = read.job
    shifts = shifts_in(job)
    left = {rank: _left(read, rank, shifts.get(rank, 0)) for rank in job.dumps}
    if stacks is None:
        stacks = {rank: stack for rank in job.dumps if (stack := _stack(read, rank))}
        on_stacks = (_STACKS,) if stacks else ()
    else:
        on_stacks = ()
    left |= {rank: replace(left.get(rank, Left("unknown")), stack=stack) for rank, stack in stacks.items()}
    return pictured(read.explanation, left, repeat, (_ISSUED, *on_stacks, _CLOCKS, *_notes(shifts)), issued=True)


def shifts_in(job: Job) -> dict[int, int]:
    """What is to be added to the times of ranks whose clocks are far from that of the first, in ns."""
    collectives = np.flatnonzero(~job.rows["p2p"])
    keys = job.rows["group"][collectives].astype(np.int64) << 40 | (job.rows["seq"][collectives] & ((1 << 40) - 1))
    ranks, created = job.rows["rank"][collectives], job.rows["created"][collectives]
    starts = np.searchsorted(ranks, np.arange(job.world_size + 1))
    own = {
        rank: (keys[first:end], created[first:end])
        for rank, (first, end) in enumerate(pairwise(starts.tolist()))
        if end > first
    }
    shifts: dict[int, int] = {}
    known: dict[int, tuple[Any, Any]] = {}
    for rank, (mine, times) in own.items():
        found = next((by for other in known.values() if (by := _apart(other, (mine, times))) is not None), 0)
        shift = found if abs(found) > CLOSE_NS else 0
        shifts[rank] = shift
        if rank not in known and len(known) < MOST_HOSTS:
            known[rank] = mine, times + shift
    return shifts


def _apart(one: tuple[Any, Any], other: tuple[Any, Any]) -> int | None:
    """By how much the clock of `other` is behind that of `one`, by calls in common; None where there are too few."""
    _, at, to = np.intersect1d(one[0], other[0], return_indices=True)
    if len(at) < FEW:
        return None
    return int(np.median(one[1][at].astype(np.float64) - other[1][to].astype(np.float64)))


def _notes(shifts: Mapping[int, int]) -> Iterator[str]:
    by_shift: dict[int, list[int]] = {}
    for rank, shift in shifts.items():
        if shift:
            by_shift.setdefault(round(shift / SECOND_NS), []).append(rank)
    for seconds, ranks in sorted(by_shift.items(), key=lambda each: -len(each[1]))[:MOST_HOSTS]:
        whose = "the clock of" if len(ranks) == 1 else "the clocks of"
        was = "was" if len(ranks) == 1 else "were"
        yield (
            f"By the calls that ranks had in common, {whose} {name_ranks(ranks)} {was} about {abs(seconds)} s "
            f"{'behind' if seconds > 0 else 'ahead'}: that is taken out here."
        )


def _left(read: Read, rank: int, shift: int) -> Left:
    job = read.job
    dump = job.dumps[rank]
    if dump.columns is None:
        return Left("unknown")
    meeting = read.verdict.standing.of.get(rank)
    first, end = job.bounds[rank]
    start = max(first, end - most_steps(job.world_size) - MARGIN)
    records = [_record(job, row, shift) for row in range(start, end)]
    return Left(_status(meeting), meeting.missing if meeting is not None else None, records, start - first)


def _stack(read: Read, rank: int) -> str:
    """From which lines the rank made the call that it is in, or its last one; nothing where its dump has no lines."""
    job, (first, end) = read.job, read.job.bounds[rank]
    meeting = read.verdict.standing.of.get(rank)
    if first == end:
        return ""
    row = meeting.rows[rank] if meeting is not None else end - 1
    site = job.site_at(row)
    if site is None:
        return ""
    said = f"in {_step(job, row)}" if meeting is not None else f"not in a call; the last was {_step(job, row)}"
    return "\n".join((f"{said}, called (most recent call first)", *_lines(site)))


def _lines(site: Site | None) -> Iterator[str]:
    """As Python prints them."""
    while site is not None:
        yield f'  File "{site.file}", line {site.line} in {site.function}'
        site = site.caller


def _status(meeting: Meeting | None) -> str:
    return "waits" if meeting is not None else "had ended what it recorded"


def _record(job: Job, row: int, shift: int) -> Record:
    begin = max(1, int(job.rows["created"][row]) + shift)
    pending = bool(job.pending[row])
    state = State.WAITING if pending else State.ENDED
    return Record(int(job.rows["record"][row]), _step(job, row), state, begin, 0 if pending else begin, 0, None, "")


def _step(job: Job, row: int) -> Step:
    if not job.rows["p2p"][row]:
        return job.step_at(row)
    call, group = job.call_at(row), job.groups[int(job.rows["group"][row])]
    other = call.target if call.op == "send" else call.source
    peer = group.members[other] if 0 <= other < len(group.members) else NO_SEQUENCE
    shown = f"{'to' if call.op == 'send' else 'from'} rank {peer}" if peer >= 0 else ""
    return Step(Kind.COLLECTIVE, call.op, group.label, shown, site=job.site_at(row), message=Message(peer))
