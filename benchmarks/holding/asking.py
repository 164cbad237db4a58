"""Asks a copy of the package by pytest, in a process of its own, and reads what it says."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.holding.adapters import ADAPTERS, CLASS
from benchmarks.holding.copies import Copies
from benchmarks.holding.population import SOURCES, Mutant

from rankdrill.conformance import Promise

__all__ = ["Answer", "Correct", "Tried", "ask_correct", "try_mutant"]

MUTANT_S = 120.0  # for the questions of one promise, up to the first that fails
CORRECT_S = 900.0  # for all questions
_STRATEGIES = SOURCES.parents[1] / "strategies"
_INI = "[pytest]\naddopts = -p no:cacheprovider -p no:asyncio\n"
_TEST, _FOUND = "test_gather.py", "found.xml"
_LAST_CHARACTERS = 600


@dataclass(frozen=True)
class Answer:
    """What pytest said: how many questions were `asked`, and the `complaints` of the kit, the first line being which
    question it was. `broke` is what went wrong otherwise, and is no answer.
    """

    asked: int
    complaints: tuple[str, ...]
    broke: str
    seconds: float


@dataclass(frozen=True)
class Tried:
    """A mutant, and what came of it through each of its adapters up to the one that found it."""

    mutant: Mutant
    answers: tuple[Answer, ...]

    @property
    def killed(self) -> bool:
        """Whether the promise that should break did, by the kit's own word."""
        return bool(self.answers[-1].complaints)

    @property
    def seconds(self) -> float:
        return sum(answer.seconds for answer in self.answers)

    @property
    def said(self) -> str:
        """The complaint, or why there is none."""
        last = self.answers[-1]
        if last.complaints:
            return last.complaints[0]
        return last.broke or f"all {sum(answer.asked for answer in self.answers)} questions passed"


@dataclass(frozen=True)
class Correct:
    """The correct gather behind an adapter, in one round."""

    adapter: str
    answer: Answer

    @property
    def findings(self) -> tuple[str, ...]:
        """What was said against it, all of it false."""
        return (*self.answer.complaints, *([self.answer.broke] if self.answer.broke else []))


def try_mutant(copies: Copies, mutant: Mutant) -> Tried:
    """Ask the questions of the promise that it breaks until one of them finds it."""
    answers: list[Answer] = []
    for adapter in mutant.through:
        answers.append(_ask(copies.make(mutant), adapter, (mutant.breaks,), MUTANT_S, stop=True))
        if answers[-1].complaints:
            break
    return Tried(mutant, tuple(answers))


def ask_correct(copies: Copies, adapter: str) -> Correct:
    """Ask everything of what has no mistake."""
    return Correct(adapter, _ask(copies.make(None), adapter, tuple(Promise), CORRECT_S, stop=False))


def _ask(room: Path, adapter: str, promises: Sequence[Promise], bound_s: float, *, stop: bool) -> Answer:
    asked = ADAPTERS[adapter]
    (room / _TEST).write_text(asked.test_file(tuple(map(str, Promise))))  # ours promise everything
    (room / "pytest.ini").write_text(_INI)
    tests = [f"{_TEST}::{CLASS}::test_{promise}" for promise in promises]
    command = [sys.executable, "-m", "pytest", "-q", *(["-x"] if stop else []), f"--junitxml={_FOUND}", *tests]
    path = os.pathsep.join(map(str, (room, _STRATEGIES)))
    began = time.monotonic()
    screen, overdue = _run(command, room, {**os.environ, "PYTHONPATH": path, **asked.environment}, bound_s)
    seconds = time.monotonic() - began
    answer = Answer(0, (), f"no end within {bound_s:.0f} s", seconds) if overdue else _read(room, screen, seconds)
    shutil.rmtree(room, ignore_errors=True)
    return answer


def _run(command: Sequence[str], room: Path, environment: dict[str, str], bound_s: float) -> tuple[str, bool]:
    """What it printed, and whether it was ended as it took too long."""
    with (room / "screen").open("w+") as screen:
        # A session of its own, so that it ends with all that it started.
        process = subprocess.Popen(
            command, cwd=room, env=environment, stdout=screen, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(bound_s)
            overdue = False
        except subprocess.TimeoutExpired:
            overdue = True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        screen.seek(0)
        return screen.read(), overdue


def _read(room: Path, screen: str, seconds: float) -> Answer:
    found = room / _FOUND
    if not found.is_file():
        return Answer(0, (), f"pytest gave up: {screen[-_LAST_CHARACTERS:]}", seconds)
    cases = list(ElementTree.parse(found).getroot().iter("testcase"))
    complaints: list[str] = []
    broke: list[str] = []
    for case in cases:
        promise = case.get("name", "").partition("[")[0].removeprefix("test_")
        for wrong in (*case.iter("failure"), *case.iter("error")):
            said = (wrong.text or "").strip()  # the message beside it is cut by pytest
            # The kit's own word begins so; anything else is a test that could not be asked.
            if wrong.tag == "failure" and said.startswith(f"not {promise}: "):
                complaints.append(said)
            else:
                broke.append(f"{case.get('name')}: {said[-_LAST_CHARACTERS:]}")
    if not cases:
        broke.append(f"nothing was asked: {screen[-_LAST_CHARACTERS:]}")
    return Answer(len(cases), tuple(complaints), "; ".join(broke), seconds)
