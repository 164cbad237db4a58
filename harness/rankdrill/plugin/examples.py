"""Hypothesis on ranks: the engine runs once, here; each example it draws goes to all ranks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from hypothesis import Phase, settings
from hypothesis.strategies import DataObject

from rankdrill.errors import UsageError

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
    fixtures = dict.fromkeys(item._fixtureinfo.argnames, _OnEachRank())
    _without_explanations(function)

    @functools.wraps(inner)
    def send(*args: Any, **kwargs: Any) -> None:
        drawn = {name: value for name, value in kwargs.items() if name not in fixtures and value is not item.instance}
        interactive = [name for name, value in drawn.items() if isinstance(value, DataObject)]
        if interactive:
            raise UsageError(
                f"{interactive[0]}=st.data() draws inside the test, where each rank would draw its own; "
                "draw it in @given"
            )
        item.run_example(drawn)

    handle.inner_test = send
    try:
        test(**fixtures)
    finally:
        handle.inner_test = inner


class _OnEachRank:
    """Stands for a fixture's value here: each rank has its own."""

    def __repr__(self) -> str:
        return "<on each rank>"


def _without_explanations(function: Any) -> None:
    # That phase traces which lines ran, in this process: they are rankdrill's, the test's ran on the ranks.
    chosen = function._hypothesis_internal_use_settings
    phases = [phase for phase in chosen.phases if phase is not Phase.explain]
    function._hypothesis_internal_use_settings = settings(chosen, phases=phases)
