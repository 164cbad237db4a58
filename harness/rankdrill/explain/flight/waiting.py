"""Who waits for whom, as far as dumps tell.

A rank waits in the first call of each group that had not ended, for every member that has not come to it. One that has
issued the call, but whose device has not begun it while that of others has, is held up by something else and has not
come either. A dump that is older than the others says nothing about where its rank is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rankdrill.explain.flight.columns import SCHEDULED, STARTED
from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.messages import Stream, pending_messages

__all__ = ["Meeting", "Standing", "standing"]


@dataclass(frozen=True)
class Meeting:
    """A call that had not ended: in which row each rank is in it, and the ranks `missing`, which have not come to it.

    For a message `seq` is -1, and `stream` says which. Who is `held` has issued it, and its device is in another call;
    who is `asleep` has, too, and its device is in none.
    """

    group: int
    seq: int
    rows: Mapping[int, int]
    missing: tuple[int, ...]
    since_ns: int
    held: frozenset[int] = frozenset()
    asleep: frozenset[int] = frozenset()
    stream: Stream | None = None

    @cached_property
    def waiting(self) -> tuple[int, ...]:
        """Who waits in it for those that are missing."""
        return tuple(sorted(self.rows.keys() - self.held - self.asleep))


@dataclass(frozen=True)
class Standing:
    """Where all ranks stand: the calls that had not ended, oldest first, and whose dumps are `older` than others'."""

    meetings: tuple[Meeting, ...]
    older: frozenset[int]

    @cached_property
    def of(self) -> Mapping[int, Meeting]:
        """The call in which each rank waits for another; else the first that it is in."""
        found: dict[int, Meeting] = {}
        for meeting in sorted(self.meetings, key=lambda meeting: not meeting.missing):
            for rank in meeting.waiting:
                before = found.get(rank)
                if before is None or (
                    bool(before.missing) == bool(meeting.missing) and meeting.rows[rank] < before.rows[rank]
                ):
                    found[rank] = meeting
        return found

    @cached_property
    def blocked(self) -> frozenset[int]:
        """Who waits for another rank."""
        return frozenset(rank for rank, meeting in self.of.items() if meeting.missing) - self.older


def standing(job: Job) -> Standing:
    """Where the ranks of `job` stand."""
    # Where a rank is in calls that have no numbers is not known either.
    older = _older(job) | {rank for group in job.unnumbered for rank in job.groups[group].members}
    opened = [(rank, *call) for rank, *call in _pending(job)]
    there: dict[tuple[int, int], dict[int, int]] = {}
    for rank, group, seq, row in opened:
        there.setdefault((group, seq), {})[rank] = row
    meetings = [_meeting(job, group, seq, rows, older) for (group, seq), rows in there.items()]
    for rank, row, stream, missing in pending_messages(job, older):
        since = int(job.rows["created"][row])
        meetings.append(Meeting(stream.group, -1, {rank: row}, missing, since, stream=stream))
    return Standing(tuple(sorted(meetings, key=lambda each: (each.since_ns, each.group))), older)


def _pending(job: Job) -> list[tuple[int, int, int, int]]:
    """By rank and group the first collective that had not ended: rank, group, number, row.

    Of gloo's, which run beside each other, the last one, too: an earlier one may just have ended when it was written.
    """
    rows = np.flatnonzero(job.pending & ~job.rows["p2p"])
    pair = job.rows["rank"][rows].astype(np.int64) * max(1, len(job.groups)) + job.rows["group"][rows]
    _, first = np.unique(pair, return_index=True)
    _, back = np.unique(pair[::-1], return_index=True)
    last = len(rows) - 1 - back
    rows = rows[np.unique(np.concatenate([first, last[job.is_gloo[rows[last]]]]))]
    columns = (job.rows[name][rows].tolist() for name in ("rank", "group", "seq"))
    return list(zip(*columns, rows.tolist(), strict=True))


def _meeting(job: Job, group: int, seq: int, rows: Mapping[int, int], older: frozenset[int]) -> Meeting:
    states = {rank: int(job.rows["state"][row]) for rank, row in rows.items()}
    begun = STARTED in states.values()  # asked once: there may be 10 000 of them
    late = [rank for rank, state in states.items() if begun and state == SCHEDULED]
    held = frozenset(rank for rank in late if _is_elsewhere(job, rank, rows[rank]))
    away = (rank for rank in job.groups[group].members if job.last_of(rank, group) < seq)
    missing = tuple(sorted({*away, *late} - older))
    since = int(job.rows["created"][list(rows.values())].min())
    return Meeting(group, seq, rows, missing, since, held, frozenset(late) - held)


def _is_elsewhere(job: Job, rank: int, row: int) -> bool:
    """Whether the rank's device is in another call than that of `row`."""
    first, end = job.bounds[rank]
    begun = job.pending[first:end] & (job.rows["state"][first:end] == STARTED)
    return bool(begun[: row - first].any() or begun[row - first + 1 :].any())


def _older(job: Job) -> frozenset[int]:
    """The ranks whose dumps end before a call that others could only end with them."""
    rows = np.flatnonzero(job.proves)
    reached = np.full(max(1, len(job.groups)), -1, np.int64)
    np.maximum.at(reached, job.rows["group"][rows], job.rows["seq"][rows])
    return frozenset(rank for group, seq in enumerate(reached.tolist()) for rank in _behind(job, group, seq))


def _behind(job: Job, group: int, seq: int) -> Iterator[int]:
    for member in job.groups[group].members if seq >= 0 else ():
        dump = job.dumps.get(member)
        if dump is None or dump.columns is None:
            continue
        last = job.last_of(member, group)
        # Without an entry of the group they may all have been overwritten, or been left out as completed.
        if last < seq and (last >= 0 or not dump.columns.wrapped):
            yield member
