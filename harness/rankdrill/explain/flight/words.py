"""How ranks, calls and messages are told."""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.diagnosis import Side, name_ranks
from rankdrill.diagnosis.finding import side_of
from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.waiting import Meeting

__all__ = ["call_of", "either", "last_sides", "wait_for", "waiting_side"]


def either(ranks: Sequence[int], one: str, several: str) -> str:
    """`one` of a single rank, `several` of more."""
    return one if len(ranks) == 1 else several


def wait_for(ranks: Sequence[int], others: Sequence[int]) -> str:
    """``ranks 0, 1 wait for rank 2``."""
    return f"{name_ranks(ranks)} {either(ranks, 'waits', 'wait')} for {name_ranks(others)}"


def call_of(job: Job, meeting: Meeting) -> str:
    """``all_reduce #3 on 'default'``, ``send from rank 0 to rank 1 on 'default'``."""
    if meeting.stream is not None:
        stream = meeting.stream
        ends = f"from rank {stream.source} to rank {stream.target}"
        return f"{stream.op} {ends} on {job.groups[meeting.group].label!r}"
    return job.step_at(next(iter(meeting.rows.values()))).call


def waiting_side(job: Job, meeting: Meeting, ranks: Sequence[int]) -> Side:
    """``rank 0 waits in all_reduce #3 on 'default'``, with its line."""
    did = f"{either(ranks, 'waits', 'wait')} in {call_of(job, meeting)}"
    return side_of(ranks, did, [job.site_at(meeting.rows[rank]) for rank in ranks])


def last_sides(job: Job, meeting: Meeting, ranks: Sequence[int]) -> list[Side]:
    """What each rank did last on the group of `meeting`, as far as it is recorded."""
    by_last: dict[str, list[int]] = {}
    sites = {}
    for rank in ranks:
        rows = job.rows_of(rank, meeting.group)
        last = job.step_at(int(rows[-1])) if len(rows) else None
        sites[rank] = last.site if last is not None else None
        nothing = f"called nothing on {job.groups[meeting.group].label!r}"
        by_last.setdefault(nothing if last is None else f"last called {last.call}", []).append(rank)
    return [side_of(those, told, [sites[rank] for rank in those]) for told, those in by_last.items()]
