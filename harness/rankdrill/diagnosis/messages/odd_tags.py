"""Which of two ends that name two tags is wrong: the ways to tell, what says most first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rankdrill.diagnosis.messages.tag_law import odd_by_law
from rankdrill.diagnosis.messages.tags import (
    odd_by_line,
    odd_by_range,
    odd_by_slope,
    odd_by_steps,
    odd_by_turn,
    odd_by_way,
)
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic

__all__ = ["odd_by_its_place", "odd_by_others_there"]

_Odd: TypeAlias = Callable[[MessageEnd, MessageEnd, Traffic], MessageEnd | None]


def odd_by_its_place(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one whose tag is not what its place among all messages asks for: more than that others have had that tag."""
    return _first((odd_by_law, odd_by_steps, odd_by_way), end, other, traffic)


def odd_by_others_there(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one whose tag is unlike those that others have at that turn, or at its line."""
    return _first((odd_by_turn, odd_by_slope, odd_by_range, odd_by_line), end, other, traffic)


def _first(ways: Sequence[_Odd], end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    found = (odd_by(end, other, traffic) for odd_by in ways)
    return next((odd for odd in found if odd is not None), None)
