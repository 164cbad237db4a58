"""From all dumps to causes: where ranks do not do the same, and who is waited for and waits for nobody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis import Confidence, name_ranks
from rankdrill.explain.explanation import Cause
from rankdrill.explain.flight.absent import absences
from rankdrill.explain.flight.apart import Apart, disagreements
from rankdrill.explain.flight.circles import circle_of
from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.waiting import Meeting, Standing, standing
from rankdrill.explain.flight.words import call_of
from rankdrill.step import DEFAULT_GROUP

__all__ = ["Verdict", "verdict_on"]


@dataclass(frozen=True)
class Verdict:
    """The causes, the first one first, what else fits, and where the ranks stand."""

    causes: tuple[Cause, ...]
    fits: tuple[str, ...]
    standing: Standing


def verdict_on(job: Job) -> Verdict:
    """What the dumps of `job` show: ranks that differ in one call, else those that never came, else a circle."""
    stand = standing(job)
    apart = disagreements(job)
    if apart:
        causes, fits = _of_disagreements(job, apart, stand)
    else:
        causes, fits = absences(job, stand)
        if not causes and not fits:
            circle = circle_of(job, stand)
            causes, fits = ([circle], []) if circle is not None else ([], list(_stuck_together(job, stand)))
    return Verdict(tuple(causes), tuple(fits), stand)


def _of_disagreements(job: Job, apart: Sequence[Apart], stand: Standing) -> tuple[list[Cause], list[str]]:
    first, *others = apart
    causes = [_cause(job, first)]
    fits: list[str] = []
    if not first.finding.culprits:
        fits.extend(f"{side}, and the others are at fault" for side in first.finding.sides)
    involved = set(first.finding.ranks)
    for other in others:
        if involved & set(other.finding.ranks):
            fits.append(f"ranks differ in {other.finding.step} too, which may have followed from the first")
        else:
            causes.append(_cause(job, other))
            involved |= set(other.finding.ranks)
    return [*causes, *_lost_beside(job, stand, first)], fits


def _lost_beside(job: Job, stand: Standing, first: Apart) -> Iterator[Cause]:
    """Who never came to calls that have nothing to do with the first cause."""
    held_up = set(job.groups[first.group].members)
    for cause in absences(job, stand)[0]:
        if cause.finding.culprits and held_up.isdisjoint(cause.finding.culprits):
            yield Cause(cause.finding, Confidence.POSSIBLE, cause.why)


def _cause(job: Job, apart: Apart) -> Cause:
    group = job.groups[apart.group]
    here = {int(job.rows["rank"][row]) for row in apart.rows}
    absent = [rank for rank in group.members if rank not in here]
    there = f"all {len(here)}" if not absent else f"{len(here)} of {len(group.members)}"
    why = [f"{there} members of {group.label!r} have recorded call #{apart.seq}, and not the same one"]
    if apart.by_custom:
        why.append("no majority tells who is at fault; what the ranks did in the rounds before does")
        return Cause(apart.finding, Confidence.LIKELY, tuple(why))
    if not apart.finding.culprits:
        return Cause(apart.finding, Confidence.POSSIBLE, (*why, "neither side is in the majority"))
    if absent:
        why.append(f"what {name_ranks(absent)} did there is not recorded")
    sure = not absent and group.told
    return Cause(apart.finding, Confidence.CERTAIN if sure else Confidence.LIKELY, tuple(why))


def _stuck_together(job: Job, stand: Standing) -> Iterator[str]:
    """What fits where ranks do not get out of a call that all members have come to; the oldest one is told."""
    for meeting in stand.meetings:
        if meeting.missing or meeting.stream is not None:
            continue
        yield f"{name_ranks(meeting.rows)} had not ended {call_of(job, meeting)}, and {_why_stuck(job, meeting)}"
        return


def _why_stuck(job: Job, meeting: Meeting) -> str:
    group = job.groups[meeting.group]
    if group.told or group.label == DEFAULT_GROUP:
        return (
            "all members have come: it is under way, or the network holds it up, or its root or reduce operator "
            "differs, which no dump shows"
        )
    return "no other member is known: who never called there may be missing"
