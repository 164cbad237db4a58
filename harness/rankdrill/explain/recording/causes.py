"""The root cause of what one run left, with how sure it is and why; and what else the evidence allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from rankdrill.diagnosis import (
    Confidence,
    Finding,
    FindingKind,
    Side,
    Wait,
    cause_of_hang,
    doomed,
    name_ranks,
    traced_back,
    waits,
)
from rankdrill.diagnosis.ddp import said_by_ddp
from rankdrill.diagnosis.finding import side_of
from rankdrill.explain.explanation import Cause
from rankdrill.explain.recording.evidence import WINDOW, Evidence, RankEvidence, cut
from rankdrill.explain.recording.mismatches import Mismatch, first_mismatch, odd_inputs
from rankdrill.explain.recording.not_met import all_there, not_met
from rankdrill.explain.recording.raw import begins_in
from rankdrill.explain.recording.standing import How, Standing, silent_in
from rankdrill.ledger import LedgerView
from rankdrill.step import NO_SEQUENCE, Site

__all__ = ["causes_of", "waits_of"]

BEFORE = 512  # records, of those that are gone through, before the call where ranks part
STUCK_S = 5.0  # in no call, while others wait
STUCK_FOR_GOOD_S = 300.0
UNUSUAL = 3.0  # times as long as it ever took the rank from one call to the next


def waits_of(standings: Sequence[Standing]) -> dict[int, Wait]:
    """What each rank that waits waits for."""
    found = waits([each.position for each in standings])
    return {rank: wait for rank, wait in found.items() if wait.missing or wait.record.state.open}


def causes_of(evidence: Evidence, standings: Sequence[Standing]) -> tuple[list[Cause], list[str]]:
    """The root cause, if it can be told, and what else fits, a sentence each."""
    waiting = waits_of(standings)
    unknown = {each.rank for each in standings if each.how is How.UNKNOWN}
    mismatch = first_mismatch(evidence)
    if mismatch is not None:
        return [_of_mismatch(mismatch, evidence, waiting, unknown)], []
    if (said := _said_by_ddp(evidence, standings)) is not None:
        return [Cause(said, Confidence.CERTAIN, ("DistributedDataParallel compared the ranks, and said so",))], []
    if (lost := _lost(standings, waiting)) is not None:
        return lost
    if (early := not_met(evidence, standings)) is not None:
        return [early], []
    certain = doomed([each.position for each in standings])
    returned = {each.rank for each in standings if each.how is How.RETURNED and not each.position.halted}
    running = [each for each in standings if each.how is How.RUNS]
    if certain and not unknown:
        found = cause_of_hang(waiting if not running else certain, returned, _windows(evidence))
        if found is not None:
            return [_certain(found, evidence, running)], []
    if unknown:
        return _about_unknown(evidence, standings, waiting, unknown)
    if (stopped := _stopped(evidence, standings, waiting)) is not None:
        return stopped
    stuck = _stuck(evidence, standings, waiting, running)
    if stuck is not None and stuck[0]:
        return stuck
    if (odd := odd_inputs(evidence, waiting)) is not None:
        why = "all have come to this call, and it does not end"
        return [Cause(traced_back(odd, waiting, _windows(evidence)), Confidence.LIKELY, (why,))], []
    silent = silent_in(standings, evidence)
    if silent and not certain:
        return _killed(silent, waiting)
    if not certain and (lost := _lost(standings, waiting, awaited=False)) is not None:
        return lost
    return stuck or ([], _undecided(certain) or all_there(evidence, standings))


def _windows(evidence: Evidence, first_ns: int | None = None) -> list[LedgerView]:
    """The views by rank, or those that begin a little before `first_ns`, where that is further back."""
    views = evidence.views
    if first_ns is not None:
        for rank, each in evidence.ranks.items():
            views[rank] = _from(each, first_ns)
    return views


def _from(rank: RankEvidence, first_ns: int) -> LedgerView:
    times = (begin + rank.full.shift_ns for begin in begins_in(rank.full))
    place = next((place for place, begin in enumerate(times) if begin >= first_ns), len(rank.full.raw))
    start = place - BEFORE
    return rank.view if start >= len(rank.full.raw) - WINDOW else cut(rank.full, start, rank.begins)


# ------------------------------------------------------------------------------------ ranks that disagree


def _of_mismatch(mismatch: Mismatch, evidence: Evidence, waiting: Mapping[int, Wait], unknown: set[int]) -> Cause:
    views = _windows(evidence, mismatch.at_ns)
    finding = traced_back(mismatch.finding, waiting, views)
    why = [f"the ranks' records of {mismatch.finding.step} do not agree"]
    if mismatch.from_start:
        why.append("they part before the first call that all records still tell of, so it may be another one before it")
        return Cause(finding, Confidence.POSSIBLE, tuple(why))
    if unknown:
        why.append(f"what {name_ranks(unknown)} did is not known")
        return Cause(finding, Confidence.LIKELY, tuple(why))
    why.append("they agree in all calls before it")
    return Cause(finding, Confidence.CERTAIN if finding.culprits else Confidence.LIKELY, tuple(why))


def _said_by_ddp(evidence: Evidence, standings: Sequence[Standing]) -> Finding | None:
    own = [each for each in standings if each.how is How.RAISED and not each.suffered]
    words = {each.rank: end.ddp for each in own if (end := evidence.ranks[each.rank].end) is not None}
    return said_by_ddp({each.rank: (words[each.rank], each.site) for each in own}, [_last_site(s) for s in standings])


# ------------------------------------------------------------------------------------ ranks that are gone


def _lost(
    standings: Sequence[Standing], waiting: Mapping[int, Wait], *, awaited: bool = True
) -> tuple[list[Cause], list[str]] | None:
    """Where ranks raised, left or died by themselves: the first of them, and in words those of another place.

    Who raised nothing is asked for if it is `awaited`, else if it was killed while others lived on, in no call yet.
    """
    gone = [each for each in standings if each.how in (How.RAISED, How.LEFT, How.GONE) and not each.suffered]
    missed = {rank for wait in waiting.values() for rank in wait.missing}
    gone = [
        each for each in gone if each.how is How.RAISED or each.rank in missed or (each.how is How.GONE and not awaited)
    ]
    if not gone:
        return None
    first = min(gone, key=lambda each: each.at_ns)
    alike = [each for each in gone if (each.how, each.site) == (first.how, first.site)]
    if first.how is How.GONE:
        alike = [first]
    others = [each for each in gone if each not in alike]
    ranks = [each.rank for each in alike]
    sides = [side_of(ranks, first.told, [each.site or _last_site(each) for each in alike]), *_waiting_sides(waiting)]
    step = next((str(wait.record.step.call) for wait in waiting.values() if set(wait.missing) & set(ranks)), "")
    finding = Finding(FindingKind.LOST_RANK, step, "rank", tuple(sides), tuple(ranks))
    sure = Confidence.LIKELY if first.how is How.GONE else Confidence.CERTAIN
    why = (f"{name_ranks(ranks)} {first.told}, before any other rank ended",)
    return [Cause(finding, sure, why)], [f"rank {each.rank} {each.told}, later" for each in others]


def _killed(silent: Sequence[Standing], waiting: Mapping[int, Wait]) -> tuple[list[Cause], list[str]]:
    ranks = [each.rank for each in silent]
    others = {rank: wait for rank, wait in waiting.items() if rank not in ranks}
    sides = [side_of(ranks, silent[0].told, [each.site for each in silent]), *_waiting_sides(others)]
    step = next((wait.record.step.call for wait in others.values()), "")
    finding = Finding(FindingKind.LOST_RANK, step, "rank", tuple(sides), tuple(ranks))
    ran = all(each.rank not in waiting for each in silent)
    why = "the others' calls failed before their time was up, and they said that they end"
    fits = "if somebody ended the whole job, it is only the first whose process was gone"
    return [Cause(finding, Confidence.LIKELY if ran else Confidence.POSSIBLE, (why,))], [fits]


def _last_site(standing: Standing) -> Site | None:
    at = standing.position.at or standing.last
    return at.step.site if at is not None else None


# ------------------------------------------------------------------------------------ ranks that wait


def _certain(found: Finding, evidence: Evidence, running: Sequence[Standing]) -> Cause:
    why = ["whoever waits waits for ranks that will never come"]
    if running:
        why.append(f"{name_ranks([each.rank for each in running])} had not ended, and cannot change that")
    dropped = sorted(rank for rank, each in evidence.ranks.items() if each.view.dropped)
    if dropped:
        why.append(f"the oldest records of {name_ranks(dropped)} were overwritten")
        return Cause(found, Confidence.LIKELY, tuple(why))
    told = found.culprits or found.kind is FindingKind.DEADLOCK
    return Cause(found, Confidence.CERTAIN if told else Confidence.LIKELY, tuple(why))


def _about_unknown(
    evidence: Evidence, standings: Sequence[Standing], waiting: Mapping[int, Wait], unknown: set[int]
) -> tuple[list[Cause], list[str]]:
    """Where all who wait have waited long, or in vain, for ranks of which nothing is known, and for nobody else."""
    awaited = {rank for wait in waiting.values() for rank in wait.missing}
    others = {each.rank for each in standings} - unknown
    since = max((wait.record.begin_ns for wait in waiting.values()), default=evidence.now_ns)
    in_vain = any(each.suffered for each in standings if each.rank in waiting)
    long = in_vain or evidence.now_ns - since > STUCK_S * 1e9
    if not awaited or not awaited <= unknown or not others <= waiting.keys() or not long:
        return [], [f"what {name_ranks(unknown)} did, of which nothing is known, may say more"]
    ranks = sorted(awaited)
    did = standings[ranks[0]].told if len(ranks) == 1 else "recorded nothing that can be read to its end"
    sides = [side_of(ranks, did, [_last_site(standings[rank]) for rank in ranks]), *_waiting_sides(waiting)]
    step = next(iter(waiting.values())).record.step.call
    finding = Finding(FindingKind.LOST_RANK, step, "rank", tuple(sides), tuple(ranks))
    why = f"all others wait for {name_ranks(ranks)}, and for nobody else"
    return [Cause(finding, Confidence.POSSIBLE, (why,))], []


def _stopped(
    evidence: Evidence, standings: Sequence[Standing], waiting: Mapping[int, Wait]
) -> tuple[list[Cause], list[str]] | None:
    """Where others wait for ranks whose process a signal has stopped, be it in a call that all have come to.

    Who waits for somebody itself is not what holds them up. Where all are stopped nobody is.
    """
    stopped = {
        rank: each.recorded.pid
        for rank, each in evidence.ranks.items()
        if each.stopped and (rank not in waiting or not waiting[rank].missing)
    }
    others = {rank: wait for rank, wait in waiting.items() if rank not in stopped}
    awaited = {rank for wait in others.values() for rank in wait.missing or _within(wait, waiting)}
    there = [each for each in standings if each.rank in awaited & stopped.keys() and not each.ended]
    if not there or all(evidence.ranks[rank].stopped for rank in others):
        return None
    ranks = [each.rank for each in there]
    sides = [
        side_of([each.rank], f"is stopped by a signal (process {stopped[each.rank]})", [each.site or _last_site(each)])
        for each in there
    ]
    step = next(iter(others.values())).record.step.call
    finding = Finding(FindingKind.STUCK_RANK, step, "rank", (*sides, *_waiting_sides(others)), tuple(ranks))
    pids = " ".join(str(stopped[rank]) for rank in ranks)
    why = f"the others wait for {name_ranks(ranks)}: 'kill -CONT {pids}' has the job go on"
    return [Cause(finding, Confidence.LIKELY, (why,))], ["who has stopped it, a batch system say, may have it go on"]


def _within(wait: Wait, waiting: Mapping[int, Wait]) -> list[int]:
    """The ranks that wait in the same call."""
    call = wait.record.step
    steps = {rank: each.record.step for rank, each in waiting.items()}
    return [rank for rank, step in steps.items() if (step.target, step.sequence) == (call.target, call.sequence)]


def _stuck(
    evidence: Evidence, standings: Sequence[Standing], waiting: Mapping[int, Wait], running: Sequence[Standing]
) -> tuple[list[Cause], list[str]] | None:
    """Where others wait for ranks that are in no call, for longer than these were before."""
    awaited = {rank for wait in waiting.values() for rank in wait.missing}
    there = [each for each in running if each.rank in awaited]
    if not there:
        return None
    unusual = [each for each in there if _unusual(evidence, each)]
    if not unusual:
        return [], [f"rank {each.rank} {each.told}, which is not unusual for it" for each in there]
    ranks = [each.rank for each in unusual]
    sides = [side_of([each.rank], each.told, [each.site or _last_site(each)]) for each in unusual]
    step = next(wait.record.step.call for wait in waiting.values() if set(wait.missing) & set(ranks))
    finding = Finding(FindingKind.STUCK_RANK, step, "rank", (*sides, *_waiting_sides(waiting)), tuple(ranks))
    idle = (evidence.now_ns - min(each.at_ns for each in unusual)) / 1e9
    sure = Confidence.LIKELY if idle >= STUCK_FOR_GOOD_S else Confidence.POSSIBLE
    why = "others wait for it, and it was never in no call for nearly as long before"
    return [Cause(finding, sure, (why,))], ["it may have been at work that takes long"]


def _unusual(evidence: Evidence, standing: Standing) -> bool:
    here = evidence.ranks[standing.rank]
    idle = (evidence.now_ns - (standing.at_ns or here.recorded.told_ns + here.shift_ns)) / 1e9
    return idle > STUCK_S and idle > UNUSUAL * _longest_pause(here.view)


def _longest_pause(view: LedgerView) -> float:
    """Seconds that passed at most between the end of one step and the beginning of the next."""
    records = [record for record in view.records if record.begin_ns]
    pauses = [after.begin_ns - before.end_ns for before, after in pairwise(records) if before.end_ns]
    return max(pauses, default=0) / 1e9


def _waiting_sides(waiting: Mapping[int, Wait]) -> list[Side]:
    """Those that wait, by what they wait in."""
    alike: dict[str, list[Wait]] = {}
    for wait in waiting.values():
        alike.setdefault(f"{wait.record.step.call}{wait.missing}", []).append(wait)
    return [_waiting_side(those) for those in alike.values()]


def _waiting_side(those: Sequence[Wait]) -> Side:
    step, missing = those[0].record.step, those[0].missing
    verb = "waits" if len(those) == 1 else "wait"
    name = step.call if step.message is None and step.sequence != NO_SEQUENCE else str(step)
    whom = f" for {name_ranks(missing)}" if missing else ""
    return side_of([wait.rank for wait in those], f"{verb} in {name}{whom}", [wait.record.step.site for wait in those])


def _undecided(certain: Mapping[int, Wait]) -> list[str]:
    if not certain:
        return []
    return [f"{name_ranks(certain)} {'waits' if len(certain) == 1 else 'wait'} for ever; the records do not say why"]
