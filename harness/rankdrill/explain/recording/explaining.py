"""A recorded job explained: read, again if it still runs, and judged."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rankdrill.diagnosis import Wait, name_ranks
from rankdrill.errors import UsageError
from rankdrill.explain.collector import no_collector
from rankdrill.explain.explanation import Explanation, Place, places_of
from rankdrill.explain.recording.causes import causes_of, waits_of
from rankdrill.explain.recording.evidence import Evidence, RankEvidence, evidence_of, with_stopped
from rankdrill.explain.recording.reading import files_in, read_directory
from rankdrill.explain.recording.runs import Run, chosen, told_apart
from rankdrill.explain.recording.standing import How, Standing, standings_of, waiting_still
from rankdrill.ledger.slots import Slots

__all__ = ["FEW", "Look", "explain_recording", "look_at", "look_into", "standing_in"]

BETWEEN_LOOKS_S = 0.1
MOST_LOOKS = 5
FEW = 64  # records that are looked at again
DOUBT_S = 0.5  # for others to come, where it cannot be told yet who is in the majority
MOST_DOUBTS = 3
MOST_SAID = 3  # of processes that are unknown, why


@dataclass(frozen=True)
class Look:
    """What became of `run`, as far as it was written down by one moment: the explanation, and what it rests on.

    `moving`: ranks went on while one looked, so that nothing is explained.
    """

    run: Run
    evidence: Evidence
    standings: tuple[Standing, ...]
    explanation: Explanation
    moving: bool = False

    @property
    def may_change(self) -> bool:
        """Whether somebody who is still on the way may tell who is at fault."""
        causes = self.explanation.causes
        told = any(cause.finding.culprits for cause in causes)
        return bool(causes) and not told and any(each.alive for each in self.evidence.ranks.values())

    @property
    def waiting(self) -> dict[int, Wait]:
        """By rank what it waits for."""
        return waits_of(self.standings)


def explain_recording(directory: str | Path, run: int | None = None) -> Explanation:
    """What became of one run recorded in `directory`, dead or alive; nothing is written.

    Runs are numbered from 1, in the order in which they began. Without a number it is the newest, of those that live
    if any does. Raises `UsageError` where there is nothing recorded, or no run of that number.
    """
    return look_into(directory, run).explanation


def look_into(directory: str | Path, number: int | None = None) -> Look:
    """The same, with what it rests on."""
    for _ in range(MOST_DOUBTS):
        there = files_in(directory)
        run, others = chosen(_runs(directory), number)
        look = look_at(run)
        if files_in(directory) != there:  # who began to record meanwhile is no rank that recorded nothing
            continue
        if not look.may_change:
            break
        time.sleep(DOUBT_S)
    found = look.explanation
    return replace(look, explanation=replace(found, source=str(directory), runs=tuple(_which(run, others))))


def look_at(run: Run) -> Look:
    """What became of `run`."""
    with no_collector():
        return _look_at(run)


def _look_at(run: Run) -> Look:
    evidence, moving = _settled(run)
    gaps = tuple(_gaps(evidence, run))
    if moving:
        standings = tuple(standings_of(evidence))
        places = _places(standings, evidence)
        return Look(run, evidence, standings, Explanation("", evidence.world_size, places=places, gaps=gaps), True)
    evidence = with_stopped(_as_they_waited(evidence))
    standings = tuple(standings_of(evidence))
    gaps = (*gaps, *_without_source(standings))
    causes, fits = causes_of(evidence, standings)
    at_odds = {rank for cause in causes for rank in cause.finding.ranks}
    victims = tuple(sorted(waits_of(standings).keys() - at_odds)) if causes else ()
    apart = {(cause.finding.group, cause.finding.number) for cause in causes}
    places = _places(standings, evidence, apart)
    found = Explanation("", evidence.world_size, tuple(causes), tuple(fits), victims, places, gaps)
    return Look(run, evidence, standings, found)


def _runs(directory: str | Path) -> list[Run]:
    recorded = read_directory(directory)
    if not recorded:
        raise UsageError(f"nothing is recorded in {directory}")
    return told_apart(recorded)


def standing_in(directory: str | Path, number: int | None = None) -> tuple[Evidence, list[Standing]]:
    """What there is of a run recorded in `directory`, as `explain_recording` chooses it, and how its ranks stand."""
    evidence = _as_they_waited(evidence_of(chosen(_runs(directory), number)[0]))
    return evidence, standings_of(evidence)


def _as_they_waited(evidence: Evidence) -> Evidence:
    """What ranks gave up is what they wait in: the first of them gave up for a reason that the others' calls tell."""
    return replace(evidence, ranks={rank: waiting_still(each) or each for rank, each in evidence.ranks.items()})


def _settled(run: Run) -> tuple[Evidence, bool]:
    """What was recorded by one moment; and whether ranks that wait went on while one looked again and again."""
    before = _newest(run)
    for _ in range(MOST_LOOKS):
        evidence = evidence_of(run)
        if all(each.alive is False for each in evidence.ranks.values()):
            return evidence, False
        time.sleep(BETWEEN_LOOKS_S)
        after = _newest(run)
        if before == after:
            return evidence, False
        before = after
    return evidence, True


def _newest(run: Run) -> list[tuple[int, Slots]]:
    """How far each process was, and its newest records, which say how far it got in them."""
    readers = [one.reader for one in run.ranks.values() if one.reader is not None]
    return [(reader.total, reader.view(max(reader.total - FEW, 0)).raw) for reader in readers]


def _places(
    standings: Sequence[Standing], evidence: Evidence, apart: Collection[tuple[str, int]] = ()
) -> tuple[Place, ...]:
    """Where all are; in the calls `apart`, by group and number, ranks do not agree."""
    waiting = waits_of(standings)
    return places_of([(each.rank, _doing(each, waiting.get(each.rank), evidence, apart)) for each in standings])


def _doing(standing: Standing, wait: Wait | None, evidence: Evidence, apart: Collection[tuple[str, int]]) -> str:
    here = evidence.ranks.get(standing.rank)
    alive = _alive(here)
    if wait is not None:
        return f"{_waiting(wait, apart)}{f'; {standing.told}' if standing.suffered else alive}"
    site = standing.site
    if standing.how is How.RUNS and site is None and standing.last is not None:
        site = standing.last.step.site
    where = f", at {site}" if site is not None else ""
    return f"{standing.told}{where}{'' if standing.ended else alive}"


def _alive(here: RankEvidence | None) -> str:
    if here is None or here.alive is None:
        return ""
    if here.stopped:
        return " (stopped by a signal)"
    return " (alive)" if here.alive else " (its process is gone)"


def _waiting(wait: Wait, apart: Collection[tuple[str, int]]) -> str:
    """As `Wait` says it, in words that suit one rank and several."""
    step = wait.record.step
    if not wait.missing and (step.target, step.sequence) in apart:
        return f"waiting in {step}, in which the ranks do not agree{step.where}"
    if not wait.missing:
        return f"waiting in {step}, to which all have come{step.where}"
    one_of = "one of " if wait.anyone and len(wait.missing) > 1 else ""
    return f"waiting in {step} for {one_of}{name_ranks(wait.missing)}{step.where}"


def _gaps(evidence: Evidence, run: Run) -> Iterator[str]:
    if evidence.missing:
        yield f"nothing was recorded by {name_ranks(evidence.missing)}"
    for rank, each in evidence.ranks.items():
        if each.recorded.trouble:
            yield f"the record of rank {rank}, {each.recorded.name}, {each.recorded.trouble}"
        elif each.torn:
            yield f"the record of rank {rank} is damaged: {each.torn} of its records are not whole"
    dropped = sorted(rank for rank, each in evidence.ranks.items() if each.view.dropped)
    if dropped:
        yield f"the oldest steps of {name_ranks(dropped)} were overwritten by newer ones, or are not looked at"
    if run.strangers:
        told = ", ".join(one.name for one in run.strangers)
        yield f"of {len(run.strangers)} processes it is not known which ranks they were: {told}"
        yield from (f"the record {one.name} {one.trouble}" for one in run.strangers[:MOST_SAID] if one.trouble)
    late = {group.calls_before for each in evidence.ranks.values() for group in each.recorded.groups}
    if len(late) > 1:
        yield "ranks began to record at different calls of a group: its numbers need not mean the same call on all"


def _without_source(standings: Sequence[Standing]) -> Iterator[str]:
    """The script may be gone, as Slurm's copy of one that was given to sbatch, or be another host's."""
    sites = (each.site or (each.last.step.site if each.last is not None else None) for each in standings)
    files = sorted({site.file for site in sites if site is not None and not site.file.startswith("<")})
    gone = [file for file in files if not os.path.exists(file)]
    if gone:
        told = ", ".join(gone[:MOST_SAID]) + (f" and {len(gone) - MOST_SAID} more" if len(gone) > MOST_SAID else "")
        yield f"the source is not there to be read: {told}"


def _which(run: Run, others: Mapping[int, Run]) -> list[str]:
    """Which run of several is told, and how to ask for another, the newest first."""
    if not others:
        return []
    told = [f"{other.name}{_life(other)}: --run {number}" for number, other in sorted(others.items(), reverse=True)]
    return [f"{run.name}{_life(run)}: explained here", *told]


def _life(run: Run) -> str:
    return ", which still runs" if run.alive else ""
