"""From dumps of PyTorch's Flight Recorder to a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rankdrill.diagnosis import Finding, FindingKind, name_ranks
from rankdrill.explain.flight.explained import Read, read_dumps
from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.verdict import Verdict
from rankdrill.explain.flight.words import either
from rankdrill.replay.cutting import cut_down
from rankdrill.replay.dump_calls import Calls
from rankdrill.replay.dump_rows import Rows
from rankdrill.replay.for_gloo import for_gloo
from rankdrill.replay.from_ledgers import folded
from rankdrill.replay.needed import needed
from rankdrill.replay.playing import ALL_RETURNED, NOBODY_KNOWN, in_words
from rankdrill.replay.score import Call, End, Part, Score
from rankdrill.step import DEFAULT_GROUP
from rankdrill.worlds import Verdict as OfWorld

__all__ = ["score_of_dumps", "score_of_read"]

SIGKILL = 9  # for whatever took a rank that left no dump


def score_of_dumps(paths: Sequence[Path], prefix: str | None = None, most: int | None = None) -> Score:
    """What the ranks did whose flight recorder's dumps are in `paths`, files and directories.

    If they were more than `most`, those that the verdict needs. Raises `UsageError` if there are no dumps.
    """
    return score_of_read(read_dumps(paths, prefix), most)


def score_of_read(read: Read, most: int | None = None) -> Score:
    """The same of dumps that have been read."""
    job, verdict = read.job, read.verdict
    found = verdict.causes[0].finding if verdict.causes else None
    sides = tuple(side.ranks for side in found.sides) if found is not None else ()
    ranks: Sequence[int] = range(job.world_size)
    if most and most < job.world_size:
        ranks = needed(job.world_size, most, found.culprits if found is not None else (), sides)
    rows, names = Rows(job, verdict, frozenset(ranks)), _names(job)
    calls = Calls(job, names)
    parts = tuple(Part(rank, _calls(calls, rows, rank), _end(rows, rank)) for rank in ranks)
    groups = {name: group.members for name, group in zip(names, job.groups, strict=True) if name != DEFAULT_GROUP}
    first, *others = _found(verdict)
    assumed = (*calls.assumed, *_supposed(rows))
    score = Score(job.world_size, parts, groups, first, read.explanation.gaps, assumed, tuple(others), sides)
    return cut_down(for_gloo(score), ranks)


def _calls(calls: Calls, rows: Rows, rank: int) -> tuple[Call, ...]:
    made = [calls.of(rank, row) for row in rows.of(rank)]
    # Where rings have wrapped, which of them make one of a function for objects is not known.
    return tuple(made if rows.begun_late else folded(made))


def _names(job: Job) -> list[str]:
    """What the groups of `job` are called, each by a name of its own; that of all ranks is the default one."""
    times: Counter[str] = Counter()
    names = []
    for group in job.groups:
        times[group.label] += 1
        names.append(group.label if times[group.label] == 1 else f"{group.label} ({times[group.label]})")
    return names


def _end(rows: Rows, rank: int) -> End:
    if rows.stops_at(rank) is not None:
        return End()
    if rank not in rows.job.dumps and rank in _lost(rows.verdict):
        return End("killed", code=SIGKILL)
    return End("returned")


def _lost(verdict: Verdict) -> set[int]:
    findings = (cause.finding for cause in verdict.causes if cause.finding.kind is FindingKind.LOST_RANK)
    return {rank for finding in findings for rank in finding.sides[0].ranks}


def _found(verdict: Verdict) -> Iterator[str]:
    """What was found, in the words of a world's verdict: where a rank was lost, that it died."""
    for cause in verdict.causes:
        yield _in_words(cause.finding)
    if not verdict.causes:
        yield NOBODY_KNOWN if verdict.standing.blocked or verdict.fits else ALL_RETURNED


def _in_words(finding: Finding) -> str:
    if finding.kind is FindingKind.LOST_RANK:
        return f"{OfWorld.DIED}: {', '.join(map(str, finding.sides[0].ranks))}"
    return in_words(finding)


def _supposed(rows: Rows) -> Iterator[str]:
    verdict = rows.verdict
    lost = sorted(rows.supposing & rows.kept)
    if lost:
        did = "taken is what the others could only do with " + either(lost, "it", "them")
        yield f"what {name_ranks(lost)} did is not all recorded: {did}"
    culprits = {rank for cause in verdict.causes for rank in cause.finding.culprits}
    if idle := sorted((culprits & rows.kept) - verdict.standing.of.keys() - {*lost}):
        does = either(idle, "it returns", "they return")
        yield f"no dump tells what {name_ranks(idle)} did behind the last recorded call: here {does}"
    if rows.begun_late:
        yield "calls that not all of their ranks still hold are left out at the beginning"
