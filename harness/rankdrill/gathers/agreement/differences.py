"""Reading everybody's slots: who is in another call, who called with other arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rankdrill.gathers.agreement.callsite import CallPlace
from rankdrill.gathers.agreement.outcomes import Trouble, TroubleKind
from rankdrill.gathers.agreement.slots import Slot

__all__ = ["different_arguments", "different_calls"]

# Troubles by channel rank, and what the others have in common.
_Finding = tuple[list[tuple[int, Trouble]], str]


def different_calls(slots: Sequence[Slot], place: CallPlace) -> _Finding:
    """The ranks that are in another call than most, `place` being this rank's own; empty if all are in one."""
    calls = [(slot.path, slot.number, slot.round) for slot in slots]
    odd = _minority(calls)
    if not odd and any(place.comes_after_or_before(slot.place) for slot in slots):
        odd = _minority([(slot.place.depth, slot.place.frames) for slot in slots])
    usual = next((slot for slot in slots if slot.rank not in odd), None)
    troubles = [(rank, Trouble(TroubleKind.DESYNC, f"is in {_where(slots[rank])}")) for rank in odd]
    return troubles, f"The other ranks are in {_where(usual)}" if usual else ""


def different_arguments(slots: Sequence[Slot]) -> _Finding:
    """The ranks that called with other arguments than most; empty if all have the same."""
    odd = _minority([slot.text for slot in slots])
    usual = next((slot for slot in slots if slot.rank not in odd), None)
    troubles = [(rank, Trouble(TroubleKind.ARGUMENT, f"called with {slots[rank].text or 'none'}")) for rank in odd]
    return troubles, f"The other ranks called with {usual.text or 'none'}" if usual else ""


def _where(slot: Slot) -> str:
    return f"{slot.path}, call {slot.number}, at {slot.place.site}"


def _minority(values: Sequence[object]) -> list[int]:
    """The positions that differ from what more than half have; all of them where no value has that many."""
    (common, count), *others = Counter(values).most_common()
    if not others:
        return []
    return [i for i, value in enumerate(values) if value != common or 2 * count <= len(values)]
