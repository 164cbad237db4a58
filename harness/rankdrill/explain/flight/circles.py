"""Ranks that wait for one another in a circle, across groups: nobody in it can go on."""

from __future__ import annotations

from rankdrill.diagnosis import Confidence, Wait, name_ranks
from rankdrill.diagnosis.deadlock import circle_in, deadlock, deadlock_of
from rankdrill.explain.explanation import Cause
from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.waiting import Meeting, Standing
from rankdrill.explain.flight.words import call_of, waiting_side
from rankdrill.ledger import Record, State
from rankdrill.step import SEND, Message

__all__ = ["circle_of"]


def circle_of(job: Job, stand: Standing) -> Cause | None:
    """The circle that ranks wait in, if there is one."""
    waits = {rank: _wait(job, rank, stand.of[rank]) for rank in sorted(stand.blocked)}
    circle = circle_in(waits)
    if not circle:
        return None
    voted = _crossed(job, stand, circle)
    if voted is not None:
        return voted
    finding = deadlock([waits[rank] for rank in circle])
    if any(stand.of[rank].stream is not None for rank in circle):
        why = ("one of them waits for a message: which of both has left a call out cannot be told",)
        return Cause(finding, Confidence.LIKELY, why)
    sure = all(job.groups[stand.of[rank].group].told for rank in circle)
    why = ("each of them is in a call that the next has not come to",)
    return Cause(finding, Confidence.CERTAIN if sure else Confidence.LIKELY, why)


def _crossed(job: Job, stand: Standing, circle: list[int]) -> Cause | None:
    """Of a circle of two calls on two groups: who of those that are in both groups came to the other one first."""
    meetings = list({id(stand.of[rank]): stand.of[rank] for rank in circle}.values())
    if len(meetings) != 2 or any(meeting.stream is not None for meeting in meetings):
        return None
    both = set(job.groups[meetings[0].group].members) & set(job.groups[meetings[1].group].members)
    few, most = sorted(meetings, key=lambda meeting: len(both & set(meeting.waiting)))
    odd, usual = sorted(both & set(few.waiting)), sorted(both & set(most.waiting))
    if not odd or len(odd) >= len(usual) or not set(few.missing) <= stand.blocked:
        return None
    sides = [waiting_side(job, few, odd), waiting_side(job, most, most.waiting)]
    finding = deadlock_of([_wait(job, rank, stand.of[rank]) for rank in circle], sides, tuple(odd))
    came = f"{name_ranks(usual)} came to {call_of(job, most)} first, {name_ranks(odd)} to {call_of(job, few)}"
    return Cause(finding, Confidence.LIKELY, (f"of those that are in both groups {came}",))


def _wait(job: Job, rank: int, meeting: Meeting) -> Wait:
    row = meeting.rows[rank]
    step = job.step_at(row)
    if meeting.stream is not None:
        stream = meeting.stream
        peer = stream.target if stream.op == SEND else stream.source
        step = step.like(op=stream.op, message=Message(peer))
    return Wait(rank, Record(row, step, State.WAITING, int(job.rows["created"][row]), 0, 0, None, ""), meeting.missing)
