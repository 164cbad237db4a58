"""The drill: surveys each gather with nothing broken, then strikes what it saw, on several worlds at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.case import Case, CaseResult, Judgement
from rankdrill.conformance.runner import Limits, Runner, StrikePoints
from rankdrill.worlds.private import PrivateDirectory

__all__ = ["Drill"]

_POLL_S = 0.2
_DEFAULT_JOBS = 4
_CLOSE_BOUND_S = 10.0


@dataclass
class Drill:
    """Runs `cases`, and after each of them the cases that `then` derives from what it saw.

    `results()` yields each result as it comes; `total` counts the cases known so far. A drill runs once. If it `tells`,
    results say what each rank sent, received and did.
    """

    adapters: Mapping[str, Adapter]
    cases: Sequence[Case]
    then: Callable[[Case, StrikePoints], Sequence[Case]] = lambda case, points: ()
    limits: Limits = field(default_factory=Limits)
    jobs: int = _DEFAULT_JOBS
    tells: bool = False

    def __post_init__(self) -> None:
        self.total = 0
        self._abandoned = threading.Event()
        self._waiting: queue.SimpleQueue[Case | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[CaseResult, StrikePoints]] = queue.SimpleQueue()

    def results(self) -> Iterator[CaseResult]:
        """Run everything; yields in the order in which cases end. Closing the iterator abandons the rest."""
        private = PrivateDirectory()  # swept by the next run, should this one be killed
        self._add(self.cases)
        # Daemons: a drill that is abandoned must not wait for cases under way. Their ranks end with this process.
        threads = [
            threading.Thread(target=self._work, args=(private.path / f"runner-{job}",), daemon=True)
            for job in range(self.jobs)
        ]
        for thread in threads:
            thread.start()
        finished = False
        try:
            for _ in _counting(lambda: self.total):
                result, points = self._next()
                if result.judgement is Judgement.RIGHT:
                    self._add(self.then(result.case, points))
                yield result
            finished = True
        finally:
            self._abandoned.set()
            for _ in threads:
                self._waiting.put(None)
            for thread in threads if finished else ():
                thread.join(_CLOSE_BOUND_S)
            private.remove()

    def _add(self, cases: Sequence[Case]) -> None:
        self.total += len(cases)
        for case in cases:
            self._waiting.put(case)

    def _next(self) -> tuple[CaseResult, StrikePoints]:
        while True:  # bounded by the deadline of the cases under way; in turns, so that Ctrl-C is heard
            try:
                return self._done.get(timeout=_POLL_S)
            except queue.Empty:
                continue

    def _work(self, scratch: Path) -> None:
        # Once abandoned, this process may be ending, and the worlds' controller with it.
        with suppress(OSError), Runner(self.adapters, self.limits, scratch, tells=self.tells) as runner:
            while (case := self._waiting.get()) is not None and not self._abandoned.is_set():
                self._done.put(_run(runner, case))


def _run(runner: Runner, case: Case) -> tuple[CaseResult, StrikePoints]:
    try:
        return runner.run(case)
    except Exception as error:  # a case that breaks the drill is a result too, and must not stop the others
        return CaseResult(case, Judgement.BROKEN, f"{type(error).__name__}: {error}"), ()


def _counting(total: Callable[[], int]) -> Iterator[int]:
    done = 0
    while done < total():
        yield done
        done += 1
