"""Runs cases one after another on this thread's worlds, which stay warm while their ranks behave."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.caller_faults import CALLER_FAULTS
from rankdrill.conformance.case import Case, CaseResult, Judgement, RankTale
from rankdrill.conformance.kit.on_rank.follow import import_all
from rankdrill.conformance.leftovers import files_left
from rankdrill.conformance.libraries import libraries_of
from rankdrill.conformance.on_rank import RankReport, Trial, read_report, run_trial
from rankdrill.conformance.segments import segments_left
from rankdrill.conformance.strikes import Effect, effect_of, is_waited_out, lasts
from rankdrill.conformance.survey import StrikePoint
from rankdrill.conformance.verdicts import Evidence, judge
from rankdrill.worlds import Outcome, Status, World
from rankdrill.worlds.job import Job

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Limits", "Runner", "StrikePoints"]

StrikePoints: TypeAlias = tuple[tuple[StrikePoint, ...], ...]
"""By rank: where strikes fit in the first call."""

_IMPORT_S = 600.0
_MOST_STEPS = 100  # of one rank that are told, the newest
# A death costs a world, and a fresh one half as long if its ranks need not import these.
_EVERY_RANK_NEEDS = ("rankdrill.conformance.on_rank", "rankdrill.conformance.paths")


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds: `brief` is the gather's timeout where the fault makes ranks wait it out, `timeout` everywhere else,
    so that a busy machine is not taken for a lost peer; `deadline` ends a case that hangs.
    """

    brief: float = 1.0
    timeout: float = 10.0
    deadline: float = 25.0


class Runner:
    """Runs cases. For one thread only; `scratch` is a directory of this runner alone, `close` throws the worlds away.

    If it `tells`, its results have the ranks' tales.
    """

    def __init__(self, adapters: Mapping[str, Adapter], limits: Limits, scratch: Path, *, tells: bool = False) -> None:
        self._adapters = adapters
        self._tells = tells
        self._limits = limits
        self._scratch = scratch
        self._worlds: dict[tuple[int, bool], World] = {}
        self._count = 0
        scratch.mkdir()

    def run(self, case: Case) -> tuple[CaseResult, StrikePoints]:
        """Run one case; never raises for what a rank did."""
        began = time.monotonic()
        self._count += 1
        scratch = self._scratch / f"case-{self._count}"
        try:
            outcome, evidence = self._drill(case, scratch)
            judgement, why = judge(evidence)
            if judgement.passed and evidence.ended:
                judgement, why = self._aftermath(case, scratch) or (judgement, why)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        result = CaseResult(
            case,
            judgement,
            why,
            tuple(_line(rank, evidence) for rank in range(case.size)),
            tuple(f"stack of rank {rank.rank}:\n{rank.stack}" for rank in outcome.ranks if rank.stack),
            time.monotonic() - began,
            max((_seconds(each) for each in evidence.reports), default=0.0),
            tuple(_tale(rank, evidence) for rank in range(case.size)) if self._tells else (),
        )
        return result, tuple(report.points if report else () for report in evidence.reports)

    def close(self) -> None:
        """Throw the worlds away."""
        for world in self._worlds.values():
            world.discard()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _drill(self, case: Case, scratch: Path) -> tuple[Outcome, Evidence]:
        effect = effect_of(case.strike)
        adapter = self._adapters[case.path]
        trial = self._trial(case, scratch, "notes")
        trial = replace(
            trial,
            thaws=case.rank if effect is Effect.STOPS else None,
            again=not lasts(case.strike) and case.strike not in CALLER_FAULTS,
            survey=not case.fault,
            caller_fault=case.strike if case.strike in CALLER_FAULTS else None,
            strays=case.rank,
            tells=self._tells,
        )
        self._import_on_ranks(case)
        outcome = self._world(case).run_job(
            Job(run_trial, (trial,), plan=_plan(case), with_context=True, in_step=True), deadline=self._limits.deadline
        )
        reports = _reports(trial, case.size)
        if not all(report and report.second and not report.second.error for report in reports):
            self._world(case).discard()  # only a second call that worked shows that the ranks are in step
        struck = () if not case.fault else tuple(range(case.size)) if case.rank < 0 else (case.rank,)
        ended = struck if effect is Effect.ENDS else ()
        files = () if ended else _left_in(trial.directory, adapter.keeps)
        return outcome, Evidence(outcome, reports, struck, ended, files + segments_left(outcome))

    def _aftermath(self, case: Case, scratch: Path) -> tuple[Judgement, str] | None:
        """After a rank has died: the next job in the same directory must work, and what the dead rank left must go."""
        trial = self._trial(case, scratch, "notes-of-the-next")
        job = Job(run_trial, (trial,), with_context=True)
        outcome = self._world(case).run_job(job, deadline=self._limits.deadline)
        files = files_left(trial.directory, self._adapters[case.path].keeps)
        judgement, why = judge(Evidence(outcome, _reports(trial, case.size), files=files))
        if judgement is Judgement.RIGHT:
            return None
        kept = judgement if judgement in (Judgement.LEAKED, Judgement.WRONG) else Judgement.SPENT
        return kept, f"after the death, the next job: {why}"

    def _trial(self, case: Case, scratch: Path, notes: str) -> Trial:
        directory = scratch / "files"
        if not scratch.exists():
            # Not with its parents: when an abandoned drill has cleaned up, nothing must come back.
            scratch.mkdir()
            directory.mkdir()
        (scratch / notes).mkdir()
        timeout = self._limits.brief if is_waited_out(case.strike) else self._limits.timeout
        patience = max(timeout, self._limits.timeout)
        return Trial(self._adapters[case.path], case.payload, str(directory), str(scratch / notes), timeout, patience)

    def _import_on_ranks(self, case: Case) -> None:
        """Have fresh ranks import what somebody else's adapter needs, which is no part of the case's time."""
        adapter, world = self._adapters[case.path], self._world(case)
        if not world.warm and not adapter.call.__module__.startswith("rankdrill."):
            # MPI's ranks could not be given anything after a job that leaves nothing to others.
            world.run_job(Job(import_all, (adapter,), prepares=adapter.mpi), deadline=_IMPORT_S).unwrap()

    def _world(self, case: Case) -> World:
        key = case.size, self._adapters[case.path].mpi
        if key not in self._worlds:
            libraries = libraries_of(*(adapter.call for adapter in self._adapters.values()))
            self._worlds[key] = World(case.size, preload=(*_EVERY_RANK_NEEDS, *libraries), mpi=key[1])
        return self._worlds[key]


def _left_in(directory: str, keeps: Sequence[str]) -> tuple[str, ...]:
    """What is wrong on disk after the calls: the directory was the caller's, who may go on using it."""
    if not Path(directory).is_dir():
        return (f"nothing: the directory {directory} itself is gone",)
    return files_left(directory, keeps)


def _plan(case: Case) -> Plan | None:
    if not case.fault or case.strike in CALLER_FAULTS:
        return None
    from rankdrill.faults import Plan

    return Plan.parse(case.fault)


def _reports(trial: Trial, size: int) -> list[RankReport | None]:
    return [read_report(trial.notes, rank) for rank in range(size)]


def _seconds(report: RankReport | None) -> float:
    first = report.first if report else None
    return (first.ended_ns - first.began_ns) / 1e9 if first else 0.0


def _tale(rank: int, evidence: Evidence) -> RankTale:
    report = evidence.reports[rank]
    first = report.first if report else None
    came = "" if first is None else first.came or (f"{first.error}: {first.message}" if first.error else "")
    records = evidence.outcome.ranks[rank].ledger.records[-_MOST_STEPS:]
    return RankTale(first.sent if first else "", came, tuple(map(str, records)))


def _line(rank: int, evidence: Evidence) -> str:
    """What one rank saw, for people."""
    outcome, report = evidence.outcome.ranks[rank], evidence.reports[rank]
    first = report.first if report else None
    struck = " (struck)" if rank in evidence.struck else ""
    if first is None or outcome.status is Status.DIED:
        return f"{outcome}{struck}"
    took = f"after {_seconds(report):.2f} s"
    if first.error:
        return f"rank {rank}{struck} raised {first.error} {took}: {first.message}"
    return f"rank {rank}{struck} returned {took}" + (f", wrong: {first.wrong}" if first.wrong else "")
