"""A table of ready-made values, and how one is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

__all__ = ["Makers", "Table", "fixed", "from_tables"]

# Makers, the simplest first: each value is made anew, for a test may change it, and each NaN is an object of its own.
Table = tuple[Callable[[], Any], ...]


def fixed(*values: Any) -> Table:
    """A table of values that cannot change."""
    return tuple(_always(value) for value in values)


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def from_tables(*tables: Table) -> st.SearchStrategy[Any]:
    """One value of `tables`; shrinks towards the first of them."""
    return _made(Makers(make for table in tables for make in table))


class Makers(tuple[Callable[[], Any], ...]):
    """Many makers, with little to say when Hypothesis prints a strategy."""

    def __repr__(self) -> str:
        return f"<{len(self)} ready-made values>"


@st.composite
def _made(draw: Callable[[st.SearchStrategy[Any]], Any], makers: Makers) -> Any:
    # Not `sampled_from(makers).map(...)`: Hypothesis would print the value as a call of ours.
    return makers[draw(st.integers(0, len(makers) - 1))]()
