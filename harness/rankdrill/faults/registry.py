"""The strikes there are, by name."""

from __future__ import annotations

from collections.abc import Mapping

from rankdrill.faults import content, desync, files, limits, memory, mismatch, objects, process, visibility
from rankdrill.faults.strike import Strike

__all__ = ["ENDING", "FAMILIES", "STRIKES"]

FAMILIES: Mapping[str, tuple[type[Strike], ...]] = {
    "desync": desync.STRIKES + mismatch.STRIKES,
    "process and time": process.STRIKES,
    "memory": memory.STRIKES + limits.STRIKES,
    "objects": objects.STRIKES,
    "files and shared memory": (*files.STRIKES, *content.STRIKES, *visibility.STRIKES, process.Crash),
}
"""The strikes by family, in the order of the documentation."""

STRIKES: Mapping[str, type[Strike]] = {strike.name: strike for family in FAMILIES.values() for strike in family}
"""Every strike, by the name that plans use."""

ENDING = frozenset(name for name, strike in STRIKES.items() if not strike.survivable) | {process.Stop.name}
"""The strikes after which the struck process is gone, or stopped until somebody continues it."""
