"""Bad arguments are refused here, early, with the value and the remedy."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rankdrill.errors import UsageError

__all__ = ["check_count", "check_flag", "check_strategy"]


def check_count(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """`value`, if it is an int within bounds; else a `UsageError` that says so."""
    upper = "" if at_most is None else f" and at most {at_most}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name}={value!r} is no count; give an int of at least {at_least}{upper}")
    if value < at_least or (at_most is not None and value > at_most):
        raise UsageError(f"{name}={value!r} is out of range; give at least {at_least}{upper}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """`value`, if it is True or False; else a `UsageError` that says so."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}={value!r} is no switch; give True or False")
    return value


def check_strategy(name: str, value: Any) -> st.SearchStrategy[Any]:
    """`value`, if it is a Hypothesis strategy; else a `UsageError` that says how to make one of it."""
    if not isinstance(value, st.SearchStrategy):
        raise UsageError(f"{name}={value!r} is no Hypothesis strategy; for a fixed value give st.just(...)")
    return value
