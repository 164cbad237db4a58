"""Hypothesis on ranks: the engine runs once, here; each example it draws goes to all ranks."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import Phase, settings
from hypothesis.strategies import DataObject

from rankdrill.errors import UsageError
from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import Example, GoOn, NoMoreExamples
from rankdrill.plugin.item import RankedItem
from rankdrill.plugin.merge import ends_of

__all__ = ["GivenItem"]


class GivenItem(RankedItem):
    """A `@given` test on ranks: drawn and shrunk in this process, executed on the ranks."""

    plain = False  # its setup is a phase of its own, which starts the ranks outside the time that Hypothesis measures

    def runtest(self) -> None:
        """The call phase, once for each example.

        Raises `UsageError` for `st.data()`, which draws inside the body: each rank would draw for itself.
        """
        test = self.obj
        function = getattr(test, "__func__", test)
        handle = function.hypothesis
        inner = handle.inner_test
        fixtures = dict.fromkeys(pytest_seam.fixture_names(self), _OnEachRank())
        _without_explanations(function)

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
        pool = self.shared.pool
        if not pool.warm(self.key):
            # The last one spoiled its ranks. Fresh ones come up outside of any example's own time.
            pool.renew(self.key)
            pool.collect(self.key, self.place.path)
            self.command(self.opened("setup"))
            self._wait_for_examples()
        outcome = self.command(Example(drawn), plan=True)
        self.take("call", outcome)
        returned = (end.returned for rank in outcome.ranks if (ends := ends_of(rank)) for end in ends.phases)
        return next((_Returned(text) for text in returned if text), None)

    def _wait_for_examples(self) -> None:
        self.take("call", self.command(GoOn(("call",), examples=True)))

    def _is_self(self, value: Any) -> bool:
        return value is not None and value is self.instance


class _OnEachRank:
    """Stands for a fixture's value here: each rank has its own."""

    def __repr__(self) -> str:
        return "<on each rank>"


class _Returned(str):
    """Stands for what a body returned on a rank; Hypothesis refuses a test that returns something."""

    def __repr__(self) -> str:
        return str(self)


def _without_explanations(function: Any) -> None:
    # That phase traces which lines ran, in this process: they are rankdrill's, the test's ran on the ranks.
    chosen = function._hypothesis_internal_use_settings
    phases = [phase for phase in chosen.phases if phase is not Phase.explain]
    function._hypothesis_internal_use_settings = settings(chosen, phases=phases)
