"""What libraries keep for a whole process, and would keep from one test to the next, where they are loaded."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["accelerate_back", "ignite_back", "read_accelerate", "read_ignite"]

_OF_ACCELERATE = ("PartialState", "AcceleratorState", "GradientState")
_IGNITE, _OF_IGNITE = "ignite.distributed.utils", ("_model", "_need_to_sync")


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


def read_ignite() -> dict[str, Any]:
    """What ignite takes the process for, and whether it asks again; nothing while it takes it to be alone."""
    held = vars(sys.modules.get(_IGNITE, object)) if _IGNITE in sys.modules else {}
    alone = isinstance(held.get("_model"), held.get("_SerialModel", type(None)))
    return {} if alone or not held.keys() >= {*_OF_IGNITE} else {name: held[name] for name in _OF_IGNITE}


def ignite_back(was: dict[str, Any], now: dict[str, Any]) -> None:
    """It asks once, in collectives: a test in which one rank alone asks it would pass after another one."""
    module = sys.modules.get(_IGNITE)
    serial = getattr(module, "_SerialModel", None)
    if module is None or serial is None:
        return
    for name, value in (was or {"_model": serial(), "_need_to_sync": True}).items():
        setattr(module, name, value)
