"""Sends and receives that had not ended, and whether their other ends have come.

The k-th send from one rank to another in a group meets the k-th receive there. Torch's own number of messages counts
those of all peers together, so it says nothing; gloo's dumps have no messages at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rankdrill.explain.flight.job import Job
from rankdrill.step import SEND

__all__ = ["Stream", "pending_messages"]


class Stream(NamedTuple):
    """``send`` or ``recv``, the group, and the global ranks of both ends."""

    op: str
    group: int
    source: int
    target: int


def pending_messages(job: Job, older: frozenset[int]) -> Iterator[tuple[int, int, Stream, tuple[int, ...]]]:
    """The first message of each rank and stream that had not ended: rank, row, stream, and its peer if missing."""
    rows = np.flatnonzero(job.rows["p2p"] & (_of_calls(job, "source") >= 0))
    keys, of, counts = np.unique(_keys(job, rows), return_inverse=True, return_counts=True)
    order = np.argsort(of, kind="stable")  # a stream's messages together, in the order in which they were made
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    pending = job.pending[rows[order]]
    still = np.bincount(of[order][pending], minlength=len(keys))
    _, firsts = np.unique(of[order][pending], return_index=True)
    for at in np.flatnonzero(pending)[firsts].tolist():
        row, place = int(rows[order[at]]), int(places[at])
        rank, stream = int(job.rows["rank"][row]), _stream(job, row)
        if stream is None:
            continue
        peer = stream.target if stream.op == SEND else stream.source
        other = int(np.searchsorted(keys, _key_of_other(job, row, peer)))
        there = other < len(keys) and keys[other] == _key_of_other(job, row, peer)
        # Where a ring has wrapped nobody knows how many there were; but what had ended, ended on both sides.
        came = there and bool(counts[other] > place if _whole(job, rank, peer) else still[other])
        yield rank, row, stream, () if came or peer in older else (peer,)


def _of_calls(job: Job, name: str) -> Any:
    """A field of each row's call."""
    return np.array([getattr(call, name) for call in job.calls] or [-1], np.int64)[job.rows["call"]]


def _keys(job: Job, rows: Any) -> Any:
    """A number for the rank and stream of each of `rows`."""
    sends = np.array([call.op == SEND for call in job.calls] or [False], np.bool_)[job.rows["call"][rows]]
    source, target = (_of_calls(job, name)[rows] for name in ("source", "target"))
    return _key(job, job.rows["rank"][rows].astype(np.int64), job.rows["group"][rows], source, target, sends)


def _key_of_other(job: Job, row: int, peer: int) -> int:
    """That of the other end of the message in `row`."""
    call = job.call_at(row)
    return int(_key(job, peer, int(job.rows["group"][row]), call.source, call.target, call.op != SEND))


def _key(job: Job, rank: Any, group: Any, source: Any, target: Any, sends: Any) -> Any:
    size = max(1, max((len(group.members) for group in job.groups), default=1))
    # Who is outside of all groups is in no stream: its number need only not be mistaken for another's.
    source, target = source % (size + 1), target % (size + 1)
    return (((rank * max(1, len(job.groups)) + group) * (size + 1) + source) * (size + 1) + target) * 2 + sends


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
