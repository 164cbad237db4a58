"""The step: one crossing of a boundary by one rank. Everything in rankdrill hangs on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["DEFAULT_GROUP", "NO_SEQUENCE", "Kind", "Step"]

NO_SEQUENCE = -1
DEFAULT_GROUP = "default"
"""What steps call the default process group; torch's own name for it is a number."""


class Kind(StrEnum):
    """What is crossed. The order is part of the ledger's format: append, never reorder."""

    COLLECTIVE = "collective"
    FILE = "file"
    SHM = "shm"
    OBJECT = "object"
    MEMORY = "memory"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class Step:
    """What a rank is about to do, described so that ranks, plans and people can compare it.

    `op` is the field's own name for it (``all_reduce``, ``rename``, ``dumps``). `target` is what it is done
    to: a process group's name, an absolute path, a segment's name, a type. `fingerprint` holds what all
    ranks of a collective must agree on (reduce op, root, dtype and shape), or a detail worth reading.
    `sequence` numbers a rank's collectives within one group, from 0; `NO_SEQUENCE` for every other step.
    """

    kind: Kind
    op: str
    target: str = ""
    fingerprint: str = ""
    nbytes: int = 0
    sequence: int = NO_SEQUENCE

    @property
    def name(self) -> str:
        """``collective.all_reduce``: how plans name this kind of step."""
        return f"{self.kind}.{self.op}"

    def __str__(self) -> str:
        parts = [self.name]
        if self.sequence != NO_SEQUENCE:
            parts.append(f"#{self.sequence}")
        if self.target:
            parts.append(f"on {self.target!r}")
        if self.fingerprint:
            parts.append(f"({self.fingerprint})")
        return " ".join(parts)
