"""Ranks that others wait for, and that wait for nobody: the ends of all chains of waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankdrill.diagnosis import Confidence, Finding, FindingKind, Side, name_ranks
from rankdrill.diagnosis.calls.sequences import Parting, parting
from rankdrill.diagnosis.finding import side_of
from rankdrill.explain.explanation import Cause
from rankdrill.explain.flight.apart import calls_up_to, from_one_start, parted_side
from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.waiting import Meeting, Standing
from rankdrill.explain.flight.words import call_of, either, last_sides, wait_for, waiting_side
from rankdrill.step import Step

__all__ = ["absences"]

YOUNG_S = 1.0  # whoever is waited for no longer need not be late


def absences(job: Job, stand: Standing) -> tuple[list[Cause], list[str]]:
    """A cause for each call at which ends of chains are missing, the first one first, and what else fits."""
    lost: list[Cause] = []
    idle: list[Cause] = []
    fits: list[str] = []
    told: set[int] = set()
    for meeting in stand.meetings:
        waiting = [rank for rank in meeting.waiting if rank not in stand.older]
        ends = [rank for rank in meeting.missing if rank not in stand.blocked and rank not in told]
        if not waiting or not ends:
            continue
        told.update(ends)
        sorted_out = _sorted_out(job, stand, meeting, ends)
        if gone := sorted_out[_GONE]:
            lost.append(_lost(job, meeting, gone, waiting))
        for how in (_TORN, _STUCK, _SPEAKS):
            if those := sorted_out[how]:
                fits.append(f"{wait_for(waiting, those)} in {call_of(job, meeting)}; {_told(job, stand, how, those)}")
        if those := sorted_out[_ASLEEP]:
            idle.append(_of_device(job, meeting, those, waiting))
        if those := sorted_out[_IDLE]:
            found, more = _of_idle(job, stand, meeting, those, waiting)
            idle.extend(found)
            fits.extend(more)
    if lost:  # whoever has ended all may have failed because of them
        fits.extend(f"{cause.finding.lines[0]}; that may have come of the loss" for cause in idle)
        return lost, [*fits, *_of_abort(job, lost)]
    return idle, fits


_GONE, _TORN, _ASLEEP, _STUCK, _SPEAKS, _IDLE = "gone", "torn", "asleep", "stuck", "speaks", "idle"


def _sorted_out(job: Job, stand: Standing, meeting: Meeting, ends: Sequence[int]) -> dict[str, list[int]]:
    """The ends of chains by what is known of them."""
    found: dict[str, list[int]] = {how: [] for how in (_GONE, _TORN, _ASLEEP, _STUCK, _SPEAKS, _IDLE)}
    for rank in ends:
        dump = job.dumps.get(rank)
        known = _ASLEEP if rank in meeting.asleep else _STUCK if rank in stand.of else _IDLE
        if known is _IDLE and job.untold(rank) is not None:
            known = _SPEAKS
        found[_GONE if dump is None else _TORN if dump.columns is None else known].append(rank)
    return found


def _told(job: Job, stand: Standing, how: str, ranks: Sequence[int]) -> str:
    if how == _TORN:
        return f"the {either(ranks, 'dump', 'dumps')} of {name_ranks(ranks)} cannot be read"
    if how == _SPEAKS:
        row = job.untold(ranks[0])
        op = job.call_at(row).op if row is not None else ""
        return (
            f"{name_ranks(ranks)} {either(ranks, 'is', 'are')} in {op}, and no dump tells whose other end has not come"
        )
    call = call_of(job, stand.of[ranks[0]])
    ends = "though nobody is known to be missing there"
    return f"{name_ranks(ranks)} {either(ranks, 'does', 'do')} not get out of {call}, {ends}: dumps show no roots"


def _lost(job: Job, meeting: Meeting, lost: Sequence[int], waiting: Sequence[int]) -> Cause:
    """That ranks left no dump; where most of a group left none, more likely somebody has not collected them."""
    few = 2 * len(lost) < len(job.groups[meeting.group].members)
    left = side_of(lost, either(lost, "left no dump", "left no dumps"), [None] * len(lost))
    sides = (left, waiting_side(job, meeting, waiting))
    finding = _finding(FindingKind.LOST_RANK, job, meeting, sides, lost if few else ())
    they = either(lost, "it", "they")
    why = (
        f"{wait_for(waiting, lost)}, and for nobody whose dump is there",
        f"{they} died before {they} could write one, or what {they} wrote was not collected",
    )
    sure = few and not _is_young(job, meeting)
    return Cause(finding, Confidence.LIKELY if sure else Confidence.POSSIBLE, why)


def _is_young(job: Job, meeting: Meeting) -> bool:
    """Whether it had begun so shortly before the dumps were written that nobody need hang."""
    return 0 <= job.written_ns - meeting.since_ns < YOUNG_S * 1e9


def _of_abort(job: Job, lost: Sequence[Cause]) -> Iterator[str]:
    """Why a rank that is lost need not be at fault."""
    if lost and job.is_gloo.any():
        yield "gloo aborts a rank whose sizes do not fit those of another, and that other one may be at fault"


def _of_idle(
    job: Job, stand: Standing, meeting: Meeting, idle: Sequence[int], waiting: Sequence[int]
) -> tuple[list[Cause], list[str]]:
    """What is wrong where ranks are waited for that had ended all they had begun."""
    call = call_of(job, meeting)
    if late := [rank for rank in idle if 0 < job.dumps[rank].written_ns < meeting.since_ns]:
        when = either(late, "its dump was written", "their dumps were written")
        return [], [f"{name_ranks(late)} may have come to {call} after {when}"]
    if _is_young(job, meeting):
        age = (job.written_ns - meeting.since_ns) / 1e9
        had_not = f"when the dumps were written, {age:.2f} s later, {name_ranks(idle)} had not come to it"
        return [], [f"{name_ranks(waiting)} had come to {call}; {had_not}"]
    if meeting.stream is not None:
        return [_unmatched(job, meeting, idle)], []
    # Whoever waits for those elsewhere says the same as who waits for them here.
    for_idle = {rank for other in stand.meetings if not set(other.missing).isdisjoint(idle) for rank in other.waiting}
    members = job.groups[meeting.group].members
    made = {rank for rank in members if job.last_of(rank, meeting.group) >= meeting.seq} | for_idle
    if len(idle) > len(made):
        return [_extra(job, meeting, idle, waiting)], [f"{name_ranks(idle)} may all be late, or have left {call} out"]
    way = f"on {either(idle, 'its', 'their')} way to {call}"
    still = f"{name_ranks(idle)} may still be {way}: computing, loading, or stuck outside of collectives; a stack tells"
    return [_left_out(job, meeting, idle, waiting, majority=len(idle) < len(made))], [still]


def _left_out(job: Job, meeting: Meeting, idle: Sequence[int], waiting: Sequence[int], *, majority: bool) -> Cause:
    theirs = calls_up_to(job, waiting[0], meeting.group, meeting.seq)
    at: dict[int, list[int]] = {}  # by the number of the call that was left out
    partings = {}
    for rank in idle:
        found = _parting(theirs, calls_up_to(job, rank, meeting.group, meeting.seq))
        earlier = found is not None and found.kind is FindingKind.MISSING and found.call.sequence < meeting.seq
        number = found.call.sequence if found is not None and earlier else meeting.seq
        at.setdefault(number, []).append(rank)
        partings[number] = found
    sides: list[Side] = []
    for number, ranks in sorted(at.items()):
        parted = partings[number]
        if number < meeting.seq and parted is not None:
            sides.append(parted_side(ranks, parted))
        else:
            did = f"{either(ranks, 'has', 'have')} not come to {call_of(job, meeting)}"
            sides.append(side_of(ranks, did, [None] * len(ranks)))
    sides += [waiting_side(job, meeting, waiting), *last_sides(job, meeting, idle)]
    finding = _finding(FindingKind.MISSING, job, meeting, sides, idle if majority else ())
    why = [f"{wait_for(waiting, idle)}, which {either(idle, 'waits', 'wait')} for nobody"]
    if min(at) < meeting.seq:
        why.append("laid side by side, the calls of both fit best so")
    if not majority:
        why.append("as many have come as have not")
    return Cause(finding, Confidence.LIKELY if majority else Confidence.POSSIBLE, tuple(why))


def _of_device(job: Job, meeting: Meeting, asleep: Sequence[int], waiting: Sequence[int]) -> Cause:
    """That the calls of some ranks are there, and their devices have not begun them."""
    call = call_of(job, meeting)
    one = f"has issued {call}, and its device has not begun it"
    did = either(asleep, one, f"have issued {call}, and their devices have not begun it")
    sides = (
        side_of(asleep, did, [job.site_at(meeting.rows[rank]) for rank in asleep]),
        waiting_side(job, meeting, waiting),
    )
    culprits = asleep if len(asleep) < len(waiting) and not _is_young(job, meeting) else ()
    finding = _finding(FindingKind.MISSING, job, meeting, sides, culprits)
    others = f"the devices of {name_ranks(waiting)} are in it"
    why = f"{others}, {either(asleep, 'that', 'those')} of {name_ranks(asleep)} in no call"
    return Cause(finding, Confidence.LIKELY if culprits else Confidence.POSSIBLE, (why,))


def _extra(job: Job, meeting: Meeting, idle: Sequence[int], waiting: Sequence[int]) -> Cause:
    """That few wait for most. Gloo's ranks may be in a message, which no dump shows: there the calls have to tell."""
    group, seq = meeting.group, meeting.seq
    why = (f"{wait_for(waiting, idle)}, which had ended all that they had begun",)
    found = _parting(calls_up_to(job, idle[0], group, seq), calls_up_to(job, waiting[0], group, seq))
    earlier = found is not None and found.kind is FindingKind.EXTRA and found.call.sequence < seq
    if not earlier and job.is_gloo[meeting.rows[waiting[0]]]:
        sides = (waiting_side(job, meeting, waiting), *last_sides(job, meeting, idle))
        return Cause(_finding(FindingKind.EXTRA, job, meeting, sides, ()), Confidence.POSSIBLE, why)
    if found is None or not earlier:
        found = Parting(FindingKind.EXTRA, job.step_at(meeting.rows[waiting[0]]))
    sides = (parted_side(waiting, found), *last_sides(job, meeting, idle))
    return Cause(_finding(FindingKind.EXTRA, job, meeting, sides, waiting), Confidence.POSSIBLE, why)


def _unmatched(job: Job, meeting: Meeting, idle: Sequence[int]) -> Cause:
    sides = (waiting_side(job, meeting, meeting.waiting), *last_sides(job, meeting, idle))
    finding = _finding(FindingKind.UNMATCHED, job, meeting, sides, ())
    return Cause(finding, Confidence.LIKELY, (f"its other end is not in the dump of {name_ranks(idle)}",))


def _finding(kind: FindingKind, job: Job, meeting: Meeting, sides: Sequence[Side], culprits: Sequence[int]) -> Finding:
    label = job.groups[meeting.group].label
    return Finding(kind, call_of(job, meeting), "", tuple(sides), tuple(sorted(culprits)), label, meeting.seq)


def _parting(theirs: Sequence[Step], mine: Sequence[Step]) -> Parting | None:
    one, other = from_one_start(theirs, mine)
    return parting(one, other, complete=True) if one and other else None
