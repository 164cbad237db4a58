"""Counts that ranks tell each other before they exchange so much: an ``all_to_all_single`` of one integer for each.

Who then sends, or expects, something else has it shown: of two sizes that do not fit it is the one nobody was told of.
"""

from __future__ import annotations

from typing import Any

import torch

from rankdrill.step import ANNOUNCED

__all__ = ["Announced"]


class Announced:
    """The newest counts on one group."""

    __slots__ = ("_heard", "_told")

    def __init__(self) -> None:
        self._told: list[int] = []
        self._heard: torch.Tensor | None = None

    def note(self, args: dict[str, Any], members: int) -> None:
        """Take in the arguments of an ``all_to_all_single`` if it is such an exchange of counts, on main memory."""
        if args.get("input_splits") or args.get("output_splits"):
            return
        told, heard = (_counts(args.get(name), members) for name in ("tensors", "outputs"))
        if told is not None and heard is not None:
            self._told, self._heard = told.tolist(), heard

    def unlike(self, sent: tuple[int, ...], received: tuple[int, ...]) -> str:
        """What was announced, in words, where that is not what is now sent and received, or the other way round."""
        if self._heard is None or not sent or not received:
            return ""
        told, heard = tuple(self._told), tuple(self._heard.tolist())
        if {(sent, received), (received, sent)} & {(told, heard)}:
            return ""
        return f"where sent {_listed(told)} received {_listed(heard)}{ANNOUNCED}"


def _counts(tensor: Any, members: int) -> torch.Tensor | None:
    if not isinstance(tensor, torch.Tensor) or tensor.numel() != members or tensor.device.type != "cpu":
        return None
    return None if tensor.is_floating_point() or tensor.is_complex() else tensor.detach().flatten()


def _listed(counts: tuple[int, ...]) -> str:
    return ",".join(map(str, counts))
