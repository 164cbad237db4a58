"""From what `rankdrill.record` left of a job to its score."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.diagnosis.calls.contracts import MEMBERS
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording import explain_recording, standing_in
from rankdrill.explain.recording.evidence import Evidence
from rankdrill.explain.recording.mismatches import Mismatch, first_mismatch
from rankdrill.explain.recording.standing import How, Standing, silent_in
from rankdrill.replay.cutting import cut_down
from rankdrill.replay.from_ledgers import score_of
from rankdrill.replay.needed import needed
from rankdrill.replay.playing import ALL_RETURNED, NOBODY_KNOWN, in_words
from rankdrill.replay.score import End, Part, Score
from rankdrill.step import NO_SEQUENCE
from rankdrill.worlds import Verdict

__all__ = ["score_of_recording"]

SIGKILL = 9  # for whatever took a rank that did not say how it went


def score_of_recording(directory: str | Path, most: int | None = None, run: int | None = None) -> Score:
    """What the ranks of a run in `directory` did, if they were more than `most` those that the verdict needs.

    Which `run` it is goes as with `explain_recording`. Raises `UsageError` where there is nothing recorded.
    """
    explanation = explain_recording(directory, run)
    evidence, standings = standing_in(directory, run)
    killed = {each.rank: each for each in silent_in(standings, evidence) if each.rank in explanation.culprits}
    standings = [killed.get(each.rank, each) for each in standings]
    ends = {each.rank: _end(each, evidence) for each in standings}
    views = {rank: its.view for rank, its in evidence.ranks.items()}
    verdict, size = _verdict(explanation, standings), evidence.world_size
    found = explanation.causes[0].finding if explanation.causes else None
    sides = [side.ranks for side in found.sides] if found is not None else []
    kept = (
        needed(size, most, found.culprits if found is not None else (), sides) if most and most < size else range(size)
    )
    score = _up_to(first_mismatch(evidence), score_of(views, size, verdict, ends, sides, kept, found))
    return cut_down(replace(score, cut=(*score.cut, *explanation.gaps)), kept)


def _up_to(mismatch: Mismatch | None, score: Score) -> Score:
    """`score` up to the call in which ranks do not agree: here they do not come further, there a backend let them."""
    if mismatch is None or mismatch.finding.number == NO_SEQUENCE or mismatch.finding.argument == MEMBERS:
        return score
    group, number = mismatch.finding.group, mismatch.finding.number
    parts = []
    for part in score.parts:
        behind = (at for at, call in enumerate(part.calls) if call.group == group and call.number > number)
        end = next(behind, None)
        parts.append(part if end is None else Part(part.rank, part.calls[:end]))
    if tuple(parts) == score.parts:
        return score
    told = f"what ranks did behind {mismatch.finding.step}, in which they do not agree, is left out"
    return replace(score, parts=tuple(parts), cut=(*score.cut, told))


def _end(standing: Standing, evidence: Evidence) -> End:
    match standing.how:
        case How.RETURNED:
            return End("returned")
        case How.RAISED if not standing.suffered:
            return End("raised", text=_raised(standing, evidence))
        case How.LEFT:
            return _left(standing)
        case How.GONE:
            return End("killed", code=SIGKILL)
        case How.RUNS:
            return End("elsewhere", text=standing.told)
    return End()


def _raised(standing: Standing, evidence: Evidence) -> str:
    """What DistributedDataParallel found wrong, which says who did it; else what it was, and where."""
    end = evidence.ranks[standing.rank].end
    said = end.ddp if end is not None else ""
    return said or f"{standing.told.removeprefix('raised ')}{_where(standing)}"


def _left(standing: Standing) -> End:
    """By a signal, where it is told that it sent itself one; with which code it left otherwise no record says."""
    text = f"{standing.told}{_where(standing)}"
    sent = signal.Signals.__members__.get(standing.told.rpartition(" with ")[2])
    return End("exited", code=1, text=text) if sent is None else End("killed", code=int(sent), text=text)


def _where(standing: Standing) -> str:
    return f", at {standing.site.path}:{standing.site.line}" if standing.site is not None else ""


def _verdict(explanation: Explanation, standings: list[Standing]) -> str:
    """In the words of a world's: where a rank was lost, how."""
    if not explanation.causes:
        return ALL_RETURNED if all(each.how is How.RETURNED for each in standings) else NOBODY_KNOWN
    finding = explanation.causes[0].finding
    if finding.kind is FindingKind.LOST_RANK:
        return f"{_how_lost(finding, standings)}: {', '.join(map(str, finding.culprits))}"
    if finding.kind is FindingKind.STUCK_RANK:  # played, it is somewhere else than in a call
        return f"{Verdict.HANG}: {', '.join(map(str, finding.culprits))}"
    return in_words(finding)


def _how_lost(finding: Finding, standings: Sequence[Standing]) -> Verdict:
    if any(each.rank in finding.culprits and each.how in (How.GONE, How.LEFT) for each in standings):
        return Verdict.DIED
    if {each.rank for each in standings} == set(finding.culprits) and len({each.told for each in standings}) == 1:
        return Verdict.TOGETHER  # all by the same error: nobody is left to be let down
    others = any(not set(side.ranks) <= set(finding.culprits) for side in finding.sides)
    return Verdict.HANG if others else Verdict.ASYMMETRIC  # they wait for it, here for ever
