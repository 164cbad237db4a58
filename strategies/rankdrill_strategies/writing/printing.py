"""What Hypothesis prints of what was drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.control import current_build_context
from hypothesis.vendor.pretty import IDKey

from rankdrill_strategies.writing.code import as_code

__all__ = ["pasteable"]


@st.composite
def pasteable(draw: Callable[[st.SearchStrategy[Any]], Any], strategy: st.SearchStrategy[Any]) -> Any:
    """What `strategy` draws; Hypothesis prints it by `as_code`, not as calls of the functions that it was drawn by."""
    value = draw(strategy)
    current_build_context().known_object_printers[IDKey(value)] = [_print]
    return value


def _print(value: Any, printer: Any, cycle: bool) -> None:
    printer.text("..." if cycle else as_code(value))
