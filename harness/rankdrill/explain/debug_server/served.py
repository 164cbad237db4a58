"""What torch's debug server has told of a job: the explanation, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankdrill.explain.debug_server.stacks import Stack
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.flight.explained import Read

__all__ = ["Served"]


@dataclass(frozen=True)
class Served:
    """The explanation; the newest stacks by rank; and what its recorders had, None where it rests on stacks alone."""

    explanation: Explanation
    stacks: Mapping[int, Stack]
    read: Read | None = None
