"""Sends and receives that had not ended, and whether their other ends have come.

The k-th send from one rank to another in a group meets the k-th receive there. Torch's own number of messages counts
those of all peers together, so it says nothing; gloo's dumps have no messages at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rankdrill.explain.flight.job import Job
from rankdrill.step import RECV, SEND

__all__ = ["Stream", "pending_messages"]


class Stream(NamedTuple):
    """``send`` or ``recv``, the group, and the global ranks of both ends."""

    op: str
    group: int
    source: int
    target: int

    @property
    def other(self) -> Stream:
        """That of the other end."""
        return self._replace(op=RECV if self.op == SEND else SEND)


def pending_messages(job: Job, older: frozenset[int]) -> Iterator[tuple[int, int, Stream, tuple[int, ...]]]:
    """The first message of each rank and stream that had not ended: rank, row, stream, and its peer if missing."""
    rows = np.flatnonzero(job.rows["p2p"])
    of: dict[tuple[int, Stream], list[int]] = {}
    for row in rows.tolist():
        stream = _stream(job, row)
        if stream is not None:
            of.setdefault((int(job.rows["rank"][row]), stream), []).append(row)
    for (rank, stream), mine in of.items():
        place = next((place for place, row in enumerate(mine) if job.pending[row]), None)
        if place is None:
            continue
        peer = stream.target if stream.op == SEND else stream.source
        theirs = of.get((peer, stream.other), [])
        # Where a ring has wrapped nobody knows how many there were; but what had ended, ended on both sides.
        came = len(theirs) > place if _whole(job, rank, peer) else any(job.pending[row] for row in theirs)
        yield rank, mine[place], stream, () if came or peer in older else (peer,)


def _stream(job: Job, row: int) -> Stream | None:
    call = job.call_at(row)
    group = int(job.rows["group"][row])
    members = job.groups[group].members
    if not (0 <= call.source < len(members) and 0 <= call.target < len(members)):
        return None
    return Stream(call.op, group, members[call.source], members[call.target])


def _whole(job: Job, *ranks: int) -> bool:
    dumps = [job.dumps.get(rank) for rank in ranks]
    return all(dump is None or dump.columns is None or not dump.columns.wrapped for dump in dumps)
