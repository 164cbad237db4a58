"""A table of ready-made values, and how one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

__all__ = ["Table", "fixed", "from_tables"]

# Makers, the simplest first: each value is made anew, for a test may change it, and each NaN is an object of its own.
Table = tuple[Callable[[], Any], ...]


def fixed(*values: Any) -> Table:
    """A table of values that cannot change."""
    return tuple(_always(value) for value in values)


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def from_tables(*tables: Iterable[Callable[[], Any]]) -> st.SearchStrategy[Any]:
    """One value of `tables`; shrinks towards the first of them."""
    return _made(st.sampled_from([make for table in tables for make in table]))


@st.composite
def _made(draw: Callable[[st.SearchStrategy[Any]], Any], makers: st.SearchStrategy[Callable[[], Any]]) -> Any:
    # Not `makers.map(...)`: Hypothesis would print the value as a call of ours.
    return draw(makers)()
