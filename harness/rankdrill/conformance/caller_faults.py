"""Faults of the caller: one that leaves a whole call out, or makes it twice. No plan says so, for a call is no step."""

from __future__ import annotations

import re

from rankdrill.conformance.case import Case

__all__ = ["CALLER_FAULTS", "REPEATED", "SKIPPED", "caller_fault_case"]

SKIPPED, REPEATED = "skipped_call", "repeated_call"
CALLER_FAULTS = {
    SKIPPED: "One rank leaves a call of the gather out and makes the next, while the others make this one.",
    REPEATED: "One rank makes a call of the gather twice, while the others go on to the next.",
}
"""What a caller may do wrong, by name."""

_LINE = re.compile(rf"rank (\d+): ({'|'.join(CALLER_FAULTS)})")


def caller_fault_case(path: str, size: int, payload: str, line: str) -> Case | None:
    """The case in which a line such as ``rank 1: skipped_call`` comes true; None for any other line."""
    found = _LINE.fullmatch(line)
    return Case(path, size, payload, found[2], line, int(found[1])) if found else None
