"""rankdrill: fire drills for ranks. Run code on N ranks, break what can break between them, see which rank did it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankdrill.faults import Plan
    from rankdrill.recording import Recording, record
    from rankdrill.worlds import Outcome, World

__all__ = ["Outcome", "Plan", "Recording", "World", "__version__", "record"]

__version__ = "0.1.0"

_HOMES = {
    "Outcome": "rankdrill.worlds",
    "Plan": "rankdrill.faults",
    "Recording": "rankdrill.recording",
    "World": "rankdrill.worlds",
    "record": "rankdrill.recording",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that the pytest plugin of a session without ranks does not import torch.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
