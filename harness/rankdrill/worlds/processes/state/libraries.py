"""What libraries keep for a whole process, and would keep from one test to the next, where they are loaded."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["accelerate_back", "read_accelerate"]

_OF_ACCELERATE = ("PartialState", "AcceleratorState", "GradientState")


def read_accelerate() -> dict[str, dict[str, Any]]:
    """What each of accelerate's shared states holds: how many ranks there are, and which one this is."""
    return {name: dict(state) for name, state in _states_of_accelerate().items() if state}


def accelerate_back(was: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> None:
    """An `Accelerator()` of one process would have every later test run each rank alone, and pass."""
    for name, state in _states_of_accelerate().items():
        state.clear()
        state.update(was.get(name, {}))


def _states_of_accelerate() -> dict[str, dict[str, Any]]:
    module = sys.modules.get("accelerate.state")
    found = {name: getattr(getattr(module, name, None), "_shared_state", None) for name in _OF_ACCELERATE}
    return {name: state for name, state in found.items() if isinstance(state, dict)}
