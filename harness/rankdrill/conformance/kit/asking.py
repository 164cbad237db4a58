"""Asks a gather its questions, on worlds of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.complaints.on_outcome import complaint_on, mistake_in
from rankdrill.conformance.kit.directories import Directories
from rankdrill.conformance.kit.on_rank.follow import follow, import_all
from rankdrill.conformance.kit.on_rank.script import Call, Script
from rankdrill.conformance.kit.questions.question import After, Broken, Question
from rankdrill.conformance.libraries import libraries_of
from rankdrill.conformance.promises import Promise
from rankdrill.conformance.segments import plant_segments, remove_segments, segments_left
from rankdrill.faults import Plan
from rankdrill.step import Kind
from rankdrill.worlds import Outcome, Status, World
from rankdrill.worlds.job import Job

__all__ = ["Asking"]

ENOUGH = 8  # wrong answers about one promise: each further one may wait for a deadline
ENOUGH_UNPROMISED = 3  # about one that was not made
ENOUGH_ALIKE = 4  # that tell of one mistake whatever is asked: of other promises one answer more
IMPORT_S = 600.0  # of the gather's modules, which is no part of a question
TIMEOUT_S = 5.0  # what gathers that take one are given
SPOILED_S = 2.0  # the same where it may have to be waited out, and what the groups then have
DEADLINES_S = 20.0, 5.0, 2.5  # of the first question to this gather that runs into it, of the next, and of all others
SPOILED_DEADLINES_S = 8.0, 4.0, 2.5  # the same where somebody cannot contribute
LEFT_S = 4.0, 2.5  # and for those that a rank has left
_ON_RANKS = "rankdrill.conformance.kit.on_rank.follow"
_STAYING = (Kind.FILE, Kind.SHM)  # what outlives a process
LATE_S = 0.05  # at each step
_SLOW = Plan.parse("rank *: delay(0.02) before collective.* every")


class Asking:
    """Questions to one gather. Worlds stay up while their ranks behave; to be closed, or used in a ``with``.

    Makes nothing before the first question, and after `close` anew.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._worlds: dict[tuple[int, bool], World] = {}
        self._undisturbed: dict[tuple[int, tuple[Call, ...]], tuple[Outcome, Directories]] = {}
        self._struck: dict[tuple[int, tuple[Call, ...], str], str] = {}
        self._scratch: Path | None = None
        self._asked = 0
        self._run_out = Counter[bool]()
        self._answers = Counter[Promise]()
        self._complaints = Counter[Promise]()
        self._mistakes = defaultdict[str, Counter[Promise]](Counter)

    def __enter__(self) -> Asking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Throw the worlds away, and what was left on disk."""
        for world in self._worlds.values():
            world.discard()
        self._worlds.clear()
        self._undisturbed.clear()
        self._struck.clear()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch = None

    def ask(self, question: Question) -> str:
        """What is wrong with the answer, in a few lines; empty if nothing is."""
        complaint = self._answer(question)
        self._answers[question.promise] += 1
        self._complaints[question.promise] += bool(complaint)
        if mistake := mistake_in(complaint):
            self._mistakes[mistake].update([question.promise])
        return complaint

    def has_enough(self, promise: Promise) -> bool:
        """Whether so many answers about `promise` were wrong that more of them say nothing new."""
        enough = ENOUGH if promise in self._adapter.promises else ENOUGH_UNPROMISED
        alike = {its[promise] for its in self._mistakes.values() if its.total() >= ENOUGH_ALIKE}
        whatever_is_asked = self._answers[promise] > 0 and self._answers[promise] in alike
        return self.wrong_about(promise) >= enough or whatever_is_asked

    def wrong_about(self, promise: Promise) -> int:
        """How many answers about `promise` were wrong."""
        return self._complaints[promise]

    def _answer(self, question: Question) -> str:
        if question.after is not None:
            return self._ask_after(question, question.after)
        if question.beside:
            return self._ask_beside(question)
        if question.broken is not None:
            return self._ask_broken(question, question.broken)
        if question.crashed is not None:
            return self._ask_crashed(question, question.crashed)
        if question.where and not self._writes(question):
            return ""
        return self._ask(question)

    # ------------------------------------------------------------------------------------ kinds of questions

    def _ask(
        self,
        question: Question,
        plan: Plan | None = None,
        *,
        directories: Directories | None = None,
        second: bool = False,
    ) -> str:
        directories = directories or self._directories(question.where)
        outcome = self._follow(question, directories, plan, second=second)
        complaint = complaint_on(question, outcome)
        segments = segments_left(outcome)
        if question.after is None or not question.after.kills:
            remove_segments(outcome)
        if complaint or not question.watched:
            return complaint
        # After an error its own files are another matter than those of others, but for who promises to be contained.
        own = not question.spoiled or Promise.CONTAINED in self._adapter.promises
        on_disk = directories.left(self._adapter.keeps, question.size)
        left = [on_disk, *(f"left in shared memory: {name}" for name in segments)]
        return directories.theirs_gone() or ("\n".join(filter(None, left)) if own else "")

    def _ask_after(self, question: Question, after: After) -> str:
        """With a rank late, or gone, at a step that is seen where nothing disturbs it."""
        seen = self._seen(question)
        if not seen.ok:
            return complaint_on(replace(question, after=None), seen)
        steps = [record.step for record in seen.ranks[after.rank].ledger.records]
        ops = [step.op for step in steps if step.kind is after.kind]
        first_call = ops[: len(ops) // len(question.calls)]
        if not first_call:
            return ""
        op, nth = (first_call[0], 1) if after.first else (first_call[-1], first_call.count(first_call[-1]))
        plan = Plan.parse(f"rank {after.rank}: {after.strike} {after.when} {after.kind}.{op} #{nth}")
        key = question.size, question.calls, str(plan)
        if key not in self._struck:  # the first step may be the last
            self._struck[key] = _under(plan, self._ask_struck(question, after, plan))
        return self._struck[key]

    def _ask_struck(self, question: Question, after: After, plan: Plan) -> str:
        directories = self._directories()
        complaint = self._ask(question, plan, directories=directories)
        if not complaint and after.kills and after.kind in _STAYING:
            complaint = self._ask_next(question, directories)
        return complaint

    def _ask_next(self, question: Question, directories: Directories) -> str:
        """Have another job, of a rank less if there can be one, find what the one that died has left."""
        complaint = self._ask(replace(question, size=max(2, question.size - 1), after=None), directories=directories)
        return f"the next job in the same place: {complaint}" if complaint else ""

    def _ask_broken(self, question: Question, broken: Broken) -> str:
        """With something wrong on the disk, if this gather comes to see it."""
        if not self._writes(question):
            return ""
        plan = Plan.parse(broken.line)
        outcome = self._follow(question, self._directories(), plan)
        remove_segments(outcome)
        return "" if outcome.unfired else _under(plan, complaint_on(question, outcome))

    def _ask_crashed(self, question: Question, kind: Kind) -> str:
        """With what the calls make already there, and not what it should be; one rank is slow to make its own, so that
        the others come to what was left."""
        seen, its = self._seen_in(question)
        directories = self._directories()
        planted = plant_segments(seen) if kind is Kind.SHM else directories.planted(its, seen)
        try:
            late = Plan.parse(f"rank {question.size - 1}: delay({LATE_S}) before {kind}.* every")
            complaint = self._ask(question, late, directories=directories) if planted else ""
        finally:
            remove_segments(seen)
        return f"{complaint}\nwith what a run that crashed has left: {', '.join(planted)}" if complaint else ""

    def _ask_beside(self, question: Question) -> str:
        """With another job beside it, both so slow between their steps that what they share they meet in. Each has a
        directory of its own, and both work in one place."""
        for second in (False, True):
            self._world(question.size, second=second)
        directories = self._directories()
        with ThreadPoolExecutor(2) as jobs:  # what goes wrong in one is raised here
            asked = [
                jobs.submit(self._ask, question, _SLOW, directories=its, second=second)
                for second, its in ((False, directories), (True, directories.beside()))
            ]
            return next(filter(None, [each.result() for each in asked]), "")

    # ------------------------------------------------------------------------------------ running them

    def _seen(self, question: Question) -> Outcome:
        """What comes of the calls with nothing broken."""
        return self._seen_in(question)[0]

    def _seen_in(self, question: Question) -> tuple[Outcome, Directories]:
        key = question.size, question.calls
        if key not in self._undisturbed:
            directories = self._directories()
            self._undisturbed[key] = self._follow(replace(question, after=None, broken=None), directories), directories
        return self._undisturbed[key]

    def _writes(self, question: Question) -> bool:
        seen = self._seen(replace(question, where=""))
        return any(record.step.kind is Kind.FILE for rank in seen.ranks for record in rank.ledger.records)

    def _follow(
        self, question: Question, directories: Directories, plan: Plan | None = None, *, second: bool = False
    ) -> Outcome:
        script = Script(
            self._adapter,
            question.calls,
            str(directories.callers),
            str(directories.work),
            str(directories.scratch),
            SPOILED_S if question.spoiled or question.spared else TIMEOUT_S,
            question.watched,
            SPOILED_S if question.spared else None,
            question.meet,
            question.regroup,
        )
        deadline = self._deadline(question)
        job = Job(follow, (script,), plan=plan, with_context=True)
        outcome = self._world(question.size, second=second).run_job(job, deadline=deadline)
        self._run_out[question.spared] += _took_all(outcome, deadline)
        if not outcome.ok or any(
            said.error for rank in outcome.ranks if rank.value is not None for said in rank.value.heard
        ):
            self._worlds[question.size, second].discard()  # the ranks may be out of step
        return outcome

    def _deadline(self, question: Question) -> float:
        """The shorter, the more questions have been waited for in vain."""
        bounds = LEFT_S if question.spared else SPOILED_DEADLINES_S if question.spoiled else DEADLINES_S
        return bounds[min(self._run_out[question.spared], len(bounds) - 1)]

    def _world(self, size: int, *, second: bool) -> World:
        world = self._worlds.get((size, second))
        if world is None:
            preload = [_ON_RANKS, *libraries_of(self._adapter.call)]
            world = self._worlds[size, second] = World(size, preload=preload, mpi=self._adapter.mpi)
        if not world.warm:
            # MPI's ranks could not be given anything after a job that leaves nothing to others.
            imports = Job(import_all, (self._adapter,), prepares=self._adapter.mpi)
            world.run_job(imports, deadline=IMPORT_S).unwrap()
        return world

    def _directories(self, where: str = "") -> Directories:
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="rankdrill-asks-"))
        self._asked += 1
        return Directories.made(self._scratch / f"question {self._asked}" / where)


def _under(plan: Plan, complaint: str) -> str:
    return f"{complaint}\nunder the fault {plan}" if complaint else ""


def _took_all(outcome: Outcome, deadline: float) -> bool:
    stuck = any(rank.status is Status.STUCK and not rank.by_plan for rank in outcome.ranks)
    return stuck and outcome.elapsed >= deadline
