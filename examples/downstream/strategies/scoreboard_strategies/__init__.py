"""Scores as Hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

__all__ = ["scores"]


def scores() -> st.SearchStrategy[dict[str, float]]:
    """One rank's scores by name, none at all among them."""
    return st.dictionaries(st.text(max_size=20), st.floats(0, 1), max_size=5)
