"""From what `rankdrill.record` left of a job to its score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankdrill.diagnosis import FindingKind
from rankdrill.explain import Explanation
from rankdrill.explain.recording import explain_recording, standing_in
from rankdrill.explain.recording.standing import How, Standing
from rankdrill.replay.cutting import cut_down
from rankdrill.replay.from_ledgers import score_of
from rankdrill.replay.needed import needed
from rankdrill.replay.playing import ALL_RETURNED, in_words
from rankdrill.replay.score import End, Score
from rankdrill.worlds import Verdict

__all__ = ["score_of_recording"]

SIGKILL = 9  # for whatever took a rank that did not say how it went


def score_of_recording(directory: str | Path, most: int | None = None) -> Score:
    """What the ranks of the newest run in `directory` did, if they were more than `most` those that the verdict needs.

    Raises `UsageError` where there is nothing recorded.
    """
    explanation = explain_recording(directory)
    evidence, standings = standing_in(directory)
    ends = {each.rank: _end(each) for each in standings}
    views = {rank: its.view for rank, its in evidence.ranks.items()}
    verdict, size = _verdict(explanation, standings), evidence.world_size
    found = explanation.causes[0].finding if explanation.causes else None
    sides = [side.ranks for side in found.sides] if found is not None else []
    kept = (
        needed(size, most, found.culprits if found is not None else (), sides) if most and most < size else range(size)
    )
    score = score_of(views, size, verdict, ends, sides, kept, found)
    return cut_down(replace(score, cut=(*score.cut, *explanation.gaps)), kept)


def _end(standing: Standing) -> End:
    match standing.how:
        case How.RETURNED:
            return End("returned")
        case How.RAISED if not standing.suffered:
            return End("raised", text=standing.told)
        case How.LEFT:
            return End("exited", code=1)
        case How.GONE:
            return End("killed", code=SIGKILL)
        case How.RUNS:
            return End("elsewhere", text=standing.told)
    return End()


def _verdict(explanation: Explanation, standings: list[Standing]) -> str:
    """In the words of a world's: where a rank was lost, that it died."""
    if not explanation.causes:
        return ALL_RETURNED
    finding = explanation.causes[0].finding
    if finding.kind is FindingKind.LOST_RANK:
        gone = [each.rank for each in standings if each.rank in finding.culprits and each.how in (How.GONE, How.LEFT)]
        return f"{Verdict.DIED if gone else Verdict.ASYMMETRIC}: {', '.join(map(str, finding.culprits))}"
    return in_words(finding)
