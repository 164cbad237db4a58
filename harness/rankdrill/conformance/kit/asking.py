"""Asks a gather its questions, on worlds of its own, and says in words what was wrong with the answer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.kit.on_rank import Heard, Script, follow, import_all
from rankdrill.conformance.kit.questions import After, Question
from rankdrill.conformance.leftovers import files_left
from rankdrill.conformance.promises import Promise
from rankdrill.diagnosis import name_ranks
from rankdrill.faults import Plan
from rankdrill.ledger import GROUP_OP
from rankdrill.worlds import Outcome, Status, World

__all__ = ["Asking"]

IMPORT_S = 600.0  # of the gather's modules, which is no part of a question
TIMEOUT_S = 5.0  # what gathers that take one are given
DEADLINE_S = 20.0
OTHERS_S = 8.0  # for the survivors of a death
_THEIRS = "somebody else's file"
_SLOW = Plan.parse("rank *: delay(0.02) before collective.* every")


class Asking:
    """Questions to one gather. Worlds stay up while their ranks behave; to be closed, or used in a ``with``.

    Makes nothing before the first question, and after `close` anew.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._worlds: dict[tuple[int, bool], World] = {}
        self._scratch: Path | None = None
        self._asked = 0

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
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch = None

    def ask(self, question: Question) -> str:
        """What is wrong with the answer, in a few lines; empty if nothing is."""
        if question.after is not None:
            return self._ask_after(question, question.after)
        if question.beside:
            return self._ask_beside(question)
        return self._ask(question)

    # ------------------------------------------------------------------------------------ kinds of questions

    def _ask(self, question: Question, plan: Plan | None = None, *, second: bool = False) -> str:
        directory = self._room()
        outcome = self._follow(question, directory, plan, second=second)
        complaint = _complaint(question, outcome)
        if complaint or not question.watched:
            return complaint
        # After an error its own files are another matter than those of others.
        return self._theirs_gone(directory) or ("" if question.spoiled else self._left(directory))

    def _ask_after(self, question: Question, after: After) -> str:
        """Once undisturbed, to see where the steps of that kind are; then with that rank late, or dead, at one."""
        seen = self._follow(question, self._room())
        if not seen.ok:
            return _complaint(question, seen)
        steps = [record.step for record in seen.ranks[after.rank].ledger.records]
        ops = [step.op for step in steps if step.kind is after.kind and step.op != GROUP_OP]
        first_call = ops[: len(ops) // len(question.calls)]
        if not first_call:
            return ""
        op, nth = (first_call[0], 1) if after.first else (first_call[-1], first_call.count(first_call[-1]))
        when = "before" if after.strike == "kill" else "after"
        plan = Plan.parse(f"rank {after.rank}: {after.strike} {when} {after.kind}.{op} #{nth}")
        complaint = self._ask(question, plan)
        return f"{complaint}\nunder the fault {plan}" if complaint else ""

    def _ask_beside(self, question: Question) -> str:
        """With another job beside it, both so slow between their steps that what they share they meet in."""
        for second in (False, True):
            self._world(question.size, second=second)
        with ThreadPoolExecutor(2) as jobs:  # what goes wrong in one is raised here
            complaints = jobs.map(lambda second: self._ask(question, _SLOW, second=second), (False, True))
            return next(filter(None, complaints), "")

    # ------------------------------------------------------------------------------------ running them

    def _follow(
        self, question: Question, directory: Path, plan: Plan | None = None, *, second: bool = False
    ) -> Outcome:
        script = Script(self._adapter, question.calls, str(directory), TIMEOUT_S, question.watched)
        deadline = OTHERS_S if question.after is not None and question.after.strike == "kill" else DEADLINE_S
        world = self._world(question.size, second=second)
        outcome = world.run(follow, script, plan=plan, deadline=deadline)
        said = [heard for rank in outcome.ranks if rank.value is not None for heard in rank.value[0]]
        if not outcome.ok or any(heard.error for heard in said):
            world.discard()  # the ranks may be out of step
        return outcome

    def _world(self, size: int, *, second: bool) -> World:
        world = self._worlds.get((size, second))
        if world is None:
            world = self._worlds[size, second] = World(size, preload=("rankdrill.conformance.kit.on_rank",))
        if not world.warm:
            world.run(import_all, self._adapter, deadline=IMPORT_S).unwrap()
        return world

    def _room(self) -> Path:
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="rankdrill-asks-"))
        self._asked += 1
        room = self._scratch / f"question {self._asked}" / "the caller's"
        room.mkdir(parents=True)
        (room / "theirs.txt").write_text(_THEIRS)
        return room

    @staticmethod
    def _theirs_gone(directory: Path) -> str:
        theirs = directory / "theirs.txt"
        if not directory.is_dir():
            return "the caller's directory is gone"
        if not theirs.is_file() or theirs.read_text() != _THEIRS:
            return "a file of the caller's, which was in the directory, is gone or has changed"
        return ""

    def _left(self, directory: Path) -> str:
        left = files_left(str(directory), ("theirs.txt", *self._adapter.keeps))
        return f"left in the directory: {', '.join(left)}" if left else ""


# ---------------------------------------------------------------------------------------- what came of it


def _complaint(question: Question, outcome: Outcome) -> str:
    killed = question.after is not None and question.after.strike == "kill"
    told = {rank.rank: rank.value for rank in outcome.ranks if rank.status is Status.RETURNED}
    changed = [f"rank {rank}: {what}" for rank, (_, all_changed) in told.items() for what in all_changed]
    if question.promise is Promise.CLEAN and question.spoiled:
        return "\n".join(changed)  # whether all of them raised, and can go on, is another promise
    if not killed and not _all_came_out(outcome):
        return _first_heard(question, outcome) + outcome.summary()
    stuck = [rank.rank for rank in outcome.ranks if rank.status is Status.STUCK and not rank.by_plan]
    if stuck:
        return f"{name_ranks(stuck)} never came out of the call: {outcome.summary()}"
    if any(rank.status in (Status.DIED, Status.RAISED) and not rank.by_plan for rank in outcome.ranks):
        return outcome.summary()
    for number, call in enumerate(question.calls):
        heard = {rank: said for rank, (all_said, _) in told.items() for said in all_said if said.call == number}
        judge = _all_or_nothing if killed else _all_raise if call.spoils is not None else _all_right
        if complaint := judge(heard):
            return f"call {number + 1} of {len(question.calls)}: {complaint}"
    return "\n".join(changed)


def _all_came_out(outcome: Outcome) -> bool:
    return all(rank.status is Status.RETURNED and rank.finding is None for rank in outcome.ranks)


def _first_heard(question: Question, outcome: Outcome) -> str:
    """Of a run that did not end: what ranks that came out of it have to say."""
    said = [
        f"rank {rank.rank}, call {heard.call + 1}: {heard.error or heard.wrong}\n"
        for rank in outcome.ranks
        if rank.status is Status.RETURNED
        for heard in rank.value[0]
        if heard.error or heard.wrong
    ]
    return "".join(said[:2])


_Judge = Callable[[dict[int, Heard]], str]


def _all_right(heard: dict[int, Heard]) -> str:
    wrong = [f"rank {rank}: {said.wrong or said.error}" for rank, said in heard.items() if said.wrong or said.error]
    kind = "wrong" if any(said.wrong for said in heard.values()) else "raised though nothing was broken"
    return f"{kind}, on {wrong[0]}" if wrong else ""


def _all_raise(heard: dict[int, Heard]) -> str:
    returned = [rank for rank, said in heard.items() if not said.error]
    if not returned:
        return ""
    if len(returned) == len(heard):
        return "every rank returned, though one could not contribute"
    return f"{name_ranks(returned)} returned, {name_ranks(set(heard) - set(returned))} raised"


def _all_or_nothing(heard: dict[int, Heard]) -> str:
    return _all_right(heard) if any(not said.error for said in heard.values()) else ""
