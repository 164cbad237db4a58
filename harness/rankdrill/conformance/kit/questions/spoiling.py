"""Calls of which the first cannot work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankdrill.conformance.kit.on_rank.script import Call
from rankdrill.conformance.kit.samples.hostile import TOO_LARGE

__all__ = ["spoil"]


def spoil(calls: Sequence[Call], rank: int, spoiled: str) -> tuple[Call, ...]:
    """The first call spoiled, the others as they are: they have to work."""
    return (replace(calls[0], spoils=rank, spoiled=spoiled, fits=spoiled == TOO_LARGE), *calls[1:])
