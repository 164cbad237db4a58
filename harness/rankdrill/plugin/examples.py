"""Hypothesis on ranks: the engine runs once, here; each example it draws goes to all ranks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from hypothesis import Phase, settings
from hypothesis.strategies import DataObject

from rankdrill.errors import UsageError
from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import Example, GoOn, NoMoreExamples
from rankdrill.plugin.merge import ends_of

if TYPE_CHECKING:
    from rankdrill.plugin.item import RankedItem

__all__ = ["run_examples"]


def run_examples(item: RankedItem) -> None:
    """Run the `@given` test of `item`: draw and shrink in this process, execute on the ranks.

    Raises `UsageError` for `st.data()`, which draws inside the body: each rank would draw for itself.
    """
    test = item.obj
    function = getattr(test, "__func__", test)
    handle = function.hypothesis
    inner = handle.inner_test
    fixtures = dict.fromkeys(pytest_seam.fixture_names(item), _OnEachRank())
    _without_explanations(function)

    # Not `functools.wraps` alone: of an async function, whether it can be run is for the ranks to say.
    @functools.wraps(inner)
    def send(*args: Any, **kwargs: Any) -> Any:
        drawn = {name: value for name, value in kwargs.items() if name not in fixtures and not _is_self(value, item)}
        interactive = [name for name, value in drawn.items() if isinstance(value, DataObject)]
        if interactive:
            raise UsageError(
                f"{interactive[0]}=st.data() draws inside the test, where each rank would draw its own; "
                "draw it in @given"
            )
        return _run_example(item, drawn)

    handle.inner_test = send
    try:
        _wait_for_examples(item)
        test(**fixtures)
    finally:
        handle.inner_test = inner
        failure = item.merged
        if item.shared.pool.at_rest(item.key):
            item.outcome = item.command(NoMoreExamples())
    if failure is None and item.outcome is not None:
        item.take("call", item.outcome)


def _run_example(item: RankedItem, drawn: dict[str, Any]) -> Any:
    """One example on all ranks; raises the culprit's error if it fails."""
    if not item.shared.pool.warm(item.key):
        # The last one spoiled its ranks. Fresh ones come up outside of any example's own time.
        item.shared.pool.renew(item.key)
        item.shared.pool.collect(item.key, item.place.path)
        item.command(item.opened("setup"))
        _wait_for_examples(item)
    outcome = item.command(Example(drawn), plan=True)
    item.take("call", outcome)
    returned = (end.returned for rank in outcome.ranks if (ends := ends_of(rank)) for end in ends.phases)
    return next((_Returned(text) for text in returned if text), None)


def _wait_for_examples(item: RankedItem) -> None:
    outcome = item.command(GoOn(("call",), examples=True))
    item.take("call", outcome)


def _is_self(value: Any, item: RankedItem) -> bool:
    return value is not None and value is item.instance


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
