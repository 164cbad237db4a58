"""Dumps explained: the verdict on a job with what was missing to judge by, and where its ranks are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankdrill.diagnosis import name_ranks
from rankdrill.explain.explanation import Explanation, places_of
from rankdrill.explain.flight.columns import UNTOLD
from rankdrill.explain.flight.job import Job
from rankdrill.explain.flight.reading import read_job
from rankdrill.explain.flight.sources import Sources, find_dumps
from rankdrill.explain.flight.verdict import Verdict, verdict_on
from rankdrill.explain.flight.words import call_of, either

__all__ = ["Read", "explain_dumps", "gaps_of", "read_dumps", "read_of"]

NEWEST = (2, 10)  # the version of dumps that this was written for
_OTHER_NUMBERS = "older torch counts batches of messages among them, TorchComms those of all groups"
_MOST_SAID = 4  # of one kind of gap
NO_FILES = Sources(())


@dataclass(frozen=True)
class Read:
    """Dumps, read: the job that they are of, where its ranks stand, and what explains it."""

    job: Job
    verdict: Verdict
    explanation: Explanation


def explain_dumps(
    paths: Sequence[Path], prefix: str | None = None, look: Callable[[int, int], None] = lambda read, total: None
) -> Explanation:
    """What the flight recorder's dumps in `paths`, files and directories, say; raises `UsageError` if there are none.

    `look` is told how many of how many have been read.
    """
    return read_dumps(paths, prefix, look).explanation


def read_dumps(
    paths: Sequence[Path], prefix: str | None = None, look: Callable[[int, int], None] = lambda read, total: None
) -> Read:
    """The same, with what it rests on."""
    sources = find_dumps(paths, prefix)
    job = read_job(sources.files, lambda read: look(read, len(sources.files)))
    return read_of(job, ", ".join(map(str, paths)), sources)


def read_of(job: Job, source: str = "", sources: Sources = NO_FILES) -> Read:
    """What the dumps of `job` say, which need not have been files."""
    verdict = verdict_on(job)
    return Read(job, verdict, _explanation(job, verdict, source, sources))


def _explanation(job: Job, verdict: Verdict, source: str, sources: Sources) -> Explanation:
    held_up = {rank for rank, meeting in verdict.standing.of.items() if meeting.missing or verdict.causes}
    return Explanation(
        source,
        job.world_size,
        verdict.causes,
        verdict.fits,
        tuple(sorted(held_up - verdict.standing.older - _culprits(verdict))),
        places_of([(rank, _doing(job, verdict, rank)) for rank in range(job.world_size)]),
        tuple(gaps_of(job, verdict, sources)),
    )


def _culprits(verdict: Verdict) -> set[int]:
    return {rank for cause in verdict.causes for rank in cause.finding.ranks}


def _doing(job: Job, verdict: Verdict, rank: int) -> str:
    dump = job.dumps.get(rank)
    if dump is None:
        return "left no dump"
    if dump.columns is None:
        return f"left a dump that {dump.error}"
    meeting = verdict.standing.of.get(rank)
    asleep = next((each for each in verdict.standing.meetings if rank in each.asleep), None)
    if asleep is not None and meeting is None:
        return f"had issued {call_of(job, asleep)}, and its device was not in it{job.step_at(asleep.rows[rank]).where}"
    if meeting is not None:
        row = meeting.rows[rank]
        if meeting.stream is not None:
            stream = meeting.stream
            peer = f"to rank {stream.target}" if stream.op == "send" else f"from rank {stream.source}"
            return f"in {stream.op} {peer} on {job.groups[stream.group].label!r}{job.step_at(row).where}"
        return f"in {job.step_at(row).call}{job.step_at(row).where}"
    first, end = job.bounds[rank]
    if first == end:
        return "recorded nothing"
    if (message := job.untold(rank)) is not None:
        step = job.step_at(message)
        return f"in {job.call_at(message).op} on {step.target!r}, of which no dump tells with whom{step.where}"
    if job.rows["p2p"][end - 1]:
        return f"had ended what it recorded, at last {job.call_at(end - 1).op}{job.step_at(end - 1).where}"
    return f"had ended what it recorded, at last {job.step_at(end - 1).call}{job.step_at(end - 1).where}"


def gaps_of(job: Job, verdict: Verdict, sources: Sources) -> list[str]:
    """What was not there to read, or says less than it seems to."""
    found = list(sources.gaps)
    broken = [dump for dump in job.dumps.values() if dump.columns is None]
    found.extend(f"{dump.name} {dump.error}" for dump in broken[:_MOST_SAID])
    if len(broken) > _MOST_SAID:
        found.append(f"{len(broken) - _MOST_SAID} dumps more cannot be read")
    if lost := [rank for rank in range(job.world_size) if rank not in job.dumps]:
        found.append(f"{name_ranks(lost)} left no dump")
    unknown = {rank for group in job.unnumbered for rank in job.groups[group].members}
    if older := sorted(verdict.standing.older - unknown):
        told = either(older, "its dump is older than others'", "their dumps are older than others'")
        found.append(f"where {name_ranks(older)} {either(older, 'is', 'are')} now is not known: {told}")
    read = {rank: dump.columns for rank, dump in job.dumps.items() if dump.columns is not None}
    if wrapped := [rank for rank, columns in read.items() if columns.wrapped]:
        found.append(f"the oldest entries of {name_ranks(wrapped)} were overwritten")
    if empty := [rank for rank, columns in read.items() if not len(columns)]:
        told = "TORCH_FR_BUFFER_SIZE, TORCH_NCCL_TRACE_BUFFER_SIZE in older torch, says how many calls are kept"
        found.append(f"{name_ranks(empty)} recorded nothing: {told}")
    if newer := [rank for rank, columns in read.items() if _version(columns.version) > NEWEST]:
        known = ".".join(map(str, NEWEST))
        found.append(f"{name_ranks(newer)} wrote a version newer than {known}: what is new in it is not read")
    return [*found, *_gaps_of_groups(job)]


def _gaps_of_groups(job: Job) -> Iterator[str]:
    if derived := [group for group in job.groups if not group.told]:
        told = ", ".join(repr(group.label) for group in derived[:_MOST_SAID]) + ", …" * (len(derived) > _MOST_SAID)
        yield f"no dump tells the members of {told}: taken for them are those that called there"
    if job.unnumbered:
        told = ", ".join(repr(job.groups[group].label) for group in sorted(job.unnumbered)[:_MOST_SAID])
        yield f"which calls on {told} belong together is not known: {_OTHER_NUMBERS}"
    if any(call.op in UNTOLD and call.source < 0 for call in job.calls):
        yield "TorchComms's dumps do not tell with whom ranks exchange messages: these are not compared"
    if job.is_gloo.any():
        yield "gloo's dumps have no sends and receives, and do not tell a call that failed from one that ended"


def _version(told: str) -> tuple[int, ...]:
    parts = told.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() and len(part) < 9 for part in parts) else ()
