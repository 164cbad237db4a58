"""Hypothesis on ranks: the engine runs once, here; each example it draws goes to all ranks."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.control import current_build_context
from hypothesis.errors import DeadlineExceeded, Flaky
from hypothesis.strategies import DataObject

from rankdrill.errors import UsageError
from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import Example, GoOn, NoMoreExamples
from rankdrill.plugin.item import RankedItem
from rankdrill.plugin.merge import RUN_AGAIN, ends_of
from rankdrill.plugin.pytest_seam import TerminalRepr
from rankdrill.plugin.shown import Block, MergedFailure
from rankdrill.worlds import Outcome

__all__ = ["GivenItem"]


class GivenItem(RankedItem):
    """A `@given` test on ranks: drawn and shrunk in this process, executed on the ranks."""

    plain = False  # its setup is a phase of its own, which starts the ranks outside the time that Hypothesis measures
    _found: list[tuple[BaseException, MergedFailure]]  # what each failing example raised, and how it is shown

    def setup(self) -> None:
        """The setup phase, on all ranks."""
        self._found = []
        super().setup()

    def runtest(self) -> None:
        """The call phase, once for each example.

        Raises `UsageError` for `st.data()`, which draws inside the body: each rank would draw for itself.
        """
        test = self.obj
        function = getattr(test, "__func__", test)
        handle = function.hypothesis
        inner = handle.inner_test
        fixtures = dict.fromkeys(pytest_seam.fixture_names(self), _OnEachRank())
        _settle(function, of_several=len(self.mark.sizes) > 1)

        # An ordinary function, also for an async one: whether that can be run is for the ranks to say.
        @functools.wraps(inner)
        def send(*args: Any, **kwargs: Any) -> Any:
            drawn = {name: value for name, value in kwargs.items() if name not in fixtures and not self._is_self(value)}
            interactive = [name for name, value in drawn.items() if isinstance(value, DataObject)]
            if interactive:
                raise UsageError(
                    f"{interactive[0]}=st.data() draws inside the test, where each rank would draw its own; "
                    "draw it in @given"
                )
            return self._run_example(drawn)

        handle.inner_test = send
        try:
            self._wait_for_examples()
            test(**fixtures)
        finally:
            handle.inner_test = inner
            failure = self.merged
            if self.shared.pool.at_rest(self.key):
                self.outcome = self.command(NoMoreExamples())
        if failure is None and self.outcome is not None:
            self.take("call", self.outcome)

    def _run_example(self, drawn: dict[str, Any]) -> Any:
        """One example on all ranks; raises the culprit's error if it fails."""
        begun = time.perf_counter()
        outcome = self._on_ranks(drawn)
        _count_only(_slowest(outcome), since=begun)
        try:
            self.take("call", outcome)
        except BaseException as error:
            if self.merged is not None:
                self._found.append((error, self.merged))
            raise
        returned = (end.returned for rank in outcome.ranks if (ends := ends_of(rank)) for end in ends.phases)
        return next((_Returned(text) for text in returned if text), None)

    def _on_ranks(self, drawn: dict[str, Any]) -> Outcome:
        pool = self.shared.pool
        if not pool.warm(self.key):
            # The last one spoiled its ranks.
            pool.renew(self.key)
            pool.collect(self.key, self.place.path)
            self.command(self.opened("setup"))
            self._wait_for_examples()
        return self.command(Example(drawn), plan=True)

    def _wait_for_examples(self) -> None:
        self.take("call", self.command(GoOn(("call",), examples=True)))

    def _is_self(self, value: Any) -> bool:
        return value is not None and value is self.instance

    def _repr_failure_py(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> TerminalRepr:
        """The example that Hypothesis settled on; or its own word on slow, unreliable or several ones, and those."""
        raised = excinfo.value
        found = self._shown(raised)  # first: a body may itself raise a group
        if found:
            self.merged = found[-1]
        else:
            found = self._shown(*raised.exceptions) if isinstance(raised, BaseExceptionGroup) else []
            if found or isinstance(raised, Flaky | DeadlineExceeded):
                self.merged = _word_of_hypothesis(raised, found, self._where, self.run_again)
        return super()._repr_failure_py(excinfo, style)

    def _shown(self, *errors: BaseException) -> list[MergedFailure]:
        return [failure for one in errors for error, failure in self._found if error is one]


def _word_of_hypothesis(
    raised: BaseException, found: list[MergedFailure], where: tuple[str, int], run_again: str
) -> MergedFailure:
    message = " ".join(str(raised.args[0]).split())
    blocks = [Block(failure.headline, failure.blocks[0].text if failure.blocks else "") for failure in found]
    word = MergedFailure(f"{type(raised).__name__}: {message}", blocks, (), where)
    word.sections.append((RUN_AGAIN, run_again))
    return word


def _count_only(seconds: float, *, since: float) -> None:
    """Of the time that this example has taken `since` then, hold only `seconds` against it.

    Hypothesis takes off what it spent drawing; to bring up fresh ranks and to exchange messages is no more the test's.
    """
    times = current_build_context().data.draw_times
    times["rankdrill"] = times.get("rankdrill", 0.0) + time.perf_counter() - since - seconds


def _slowest(outcome: Outcome) -> float:
    """Seconds of the body on the rank that needed longest."""
    ends = filter(None, map(ends_of, outcome.ranks))
    return max((end.seconds for of_rank in ends for end in of_rank.phases), default=0.0)


class _OnEachRank:
    """Stands for a fixture's value here: each rank has its own."""

    def __repr__(self) -> str:
        return "<on each rank>"


class _Returned(str):
    """Stands for what a body returned on a rank; Hypothesis refuses a test that returns something."""

    def __repr__(self) -> str:
        return str(self)


def _settle(function: Any, *, of_several: bool) -> None:
    """Leave out what Hypothesis would say of this process or, `of_several` sizes, of the instance for each of them."""
    chosen = function._hypothesis_internal_use_settings
    # That phase traces which lines ran, in this process: they are rankdrill's, the test's ran on the ranks.
    phases = [phase for phase in chosen.phases if phase is not Phase.explain]
    suppressed = {*chosen.suppress_health_check}
    if of_several:  # as its plugin does for a test that pytest.mark.parametrize parametrizes
        suppressed.add(HealthCheck.differing_executors)
    function._hypothesis_internal_use_settings = settings(chosen, phases=phases, suppress_health_check=suppressed)
