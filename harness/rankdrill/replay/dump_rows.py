"""Which entries of a flight recorder's dumps each rank plays again, in order.

Rings begin at different calls: what not all members of a group still hold is left out for all. Of a rank whose dump is
not there, or older than others, it is supposed that it did what the others could only end with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.verdict import Verdict
from rankdrill.explain.flight.waiting import Meeting
from rankdrill.replay.merging import NOT_WAITING
from rankdrill.step import SEND

__all__ = ["Row", "Rows"]

_NOT_YET = np.iinfo(np.int64).max


class Row(NamedTuple):
    """An entry that a rank plays: its own, or one of another rank, of which it is supposed to have made its part."""

    number: int
    supposed: bool = False


class _Stream(NamedTuple):
    """Messages from one rank to another in a group."""

    group: int
    source: int
    target: int


@dataclass(frozen=True)
class Rows:
    """The entries of `job` that the ranks `kept` play."""

    job: Job
    verdict: Verdict
    kept: frozenset[int]

    def of(self, rank: int) -> list[Row]:
        """Those of `rank`."""
        dump = self.job.dumps.get(rank)
        own = [Row(row) for row in self._own(rank)] if dump is not None and dump.columns is not None else []
        return own if rank not in self.supposing else [*own, *self._supposed(rank)]

    @cached_property
    def supposing(self) -> frozenset[int]:
        """The ranks of which more is supposed than is recorded."""
        dumps = self.job.dumps
        unread = (rank for rank in range(self.job.world_size) if rank not in dumps or dumps[rank].columns is None)
        return self.verdict.standing.older | frozenset(unread)

    @cached_property
    def begun_late(self) -> bool:
        """Whether calls are left out that not all who made them still hold."""
        return any(start > 1 for start in self._starts.values())

    def _own(self, rank: int) -> Iterator[int]:
        rows, (first, end) = self.job.rows, self.job.bounds[rank]
        wait = self.stops_at(rank)
        last = end if wait is None else self._end_of_wait(wait, end)
        group, seq, p2p = (rows[name][first:last].tolist() for name in ("group", "seq", "p2p"))
        for at, row in enumerate(range(first, last)):
            if self.job.call_at(row).op == "coalesced":
                continue  # its parts have entries of their own
            if p2p[at]:
                if row not in self._unmatched:
                    yield row
            elif seq[at] >= self._starts.get(group[at], 0):
                yield row

    def stops_at(self, rank: int) -> int | None:
        """The entry of the call in which `rank` waits for somebody who is kept, or all have come; None for none."""
        meetings = self._meetings.get(rank, ())
        here = [each for each in meetings if self.kept.intersection(each.missing)] or [
            each for each in meetings if not each.missing
        ]
        return min((each.rows[rank] for each in here), default=None)

    @cached_property
    def _meetings(self) -> Mapping[int, Sequence[Meeting]]:
        """The calls that each rank waits in."""
        found: dict[int, list[Meeting]] = defaultdict(list)
        for meeting in self.verdict.standing.meetings:
            for rank in meeting.waiting:
                found[rank].append(meeting)
        return found

    def _end_of_wait(self, row: int, end: int) -> int:
        """Behind which entry of its rank the wait in `row` lies: messages that are issued together are."""
        if not self.job.rows["p2p"][row]:
            return row + 1
        last = row + 1
        for other in range(row + 1, end):
            site = self.job.site_at(other)
            if self.job.call_at(other).op == "coalesced" or (site is not None and site.via in NOT_WAITING):
                last = other + 1
        return last

    @cached_property
    def _starts(self) -> Mapping[int, int]:
        """By group the number of the first collective that all members still hold."""
        found = {}
        for group, its in enumerate(self.job.groups):
            dumps = ((rank, self.job.dumps.get(rank)) for rank in its.members)
            wrapped = [rank for rank, dump in dumps if dump is not None and dump.columns and dump.columns.wrapped]
            starts = [self._first_held(rank, group) for rank in wrapped]
            found[group] = max(starts, default=0)
        return found

    def _first_held(self, rank: int, group: int) -> int:
        rows = self.job.rows_of(rank, group)
        return int(self.job.rows["seq"][rows[0]]) if len(rows) else self._proved.get(group, 0) + 1

    @cached_property
    def _proved(self) -> Mapping[int, int]:
        """By group the last collective that all members are known to have come to."""
        rows = np.flatnonzero(self.job.proves)
        found: dict[int, int] = {}
        for group, seq in zip(*(self.job.rows[name][rows].tolist() for name in ("group", "seq")), strict=True):
            found[group] = max(seq, found.get(group, 0))
        return found

    @cached_property
    def _messages(self) -> Mapping[_Stream, tuple[list[int], list[int]]]:
        """The sends and the receives of each stream, in order."""
        found: dict[_Stream, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        mine = np.isin(self.job.rows["rank"], list(self.kept))
        for row in np.flatnonzero(self.job.rows["p2p"] & mine).tolist():
            call, group = self.job.call_at(row), int(self.job.rows["group"][row])
            members = self.job.groups[group].members
            if 0 <= call.source < len(members) and 0 <= call.target < len(members):
                ends = members[call.source], members[call.target]
                found[_Stream(group, *ends)][call.op != SEND].append(row)
        return found

    @cached_property
    def _unmatched(self) -> frozenset[int]:
        """Messages that have ended, and whose other ends the ring of the other rank no longer holds."""
        return frozenset(row for stream, ends in self._messages.items() for row in self._without_end(stream, ends))

    def _without_end(self, stream: _Stream, ends: tuple[list[int], list[int]]) -> Iterator[int]:
        if {stream.source, stream.target} & self.supposing:
            return
        ended = [[row for row in rows if not self.job.pending[row]] for rows in ends]
        both = min(map(len, ended))
        for rows in ended:
            yield from rows[: len(rows) - both]

    def _supposed(self, rank: int) -> list[Row]:
        """What `rank` is supposed to have done behind what its dump has."""
        found: list[Row] = []
        for group, its in enumerate(self.job.groups):
            if rank in its.members:
                found.extend(Row(row, supposed=True) for row in self._of_others(rank, group, its.members))
        for stream, (sends, receives) in self._messages.items():
            if rank in (stream.source, stream.target):
                mine, theirs = (sends, receives) if rank == stream.source else (receives, sends)
                ended = [row for row in theirs if not self.job.pending[row]]
                found.extend(Row(row, supposed=True) for row in ended[len(mine) :])
        created = self.job.rows["created"]
        return sorted(found, key=lambda row: (int(created[row.number]), row.number))

    def _of_others(self, rank: int, group: int, members: Sequence[int]) -> Iterator[int]:
        """The collectives of `group` that `rank` is supposed to have made: one member's entries of each."""
        seqs = self.job.rows["seq"]
        last, ends = self.job.last_of(rank, group), self._ends(rank, group)
        taken = max(last, self._starts.get(group, 0) - 1)
        for member in members:
            if member == rank:
                continue
            rows = [row for row in self.job.rows_of(member, group).tolist() if taken < seqs[row] < ends]
            yield from rows
            taken = max([taken, *(int(seqs[row]) for row in rows)])

    def _ends(self, rank: int, group: int) -> int:
        """The number of the collective of `group` at which others wait for `rank`."""
        at = [each.seq for each in self.verdict.standing.meetings if each.group == group and rank in each.missing]
        return min((seq for seq in at if seq >= 0), default=_NOT_YET)
