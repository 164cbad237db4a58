"""Counts that ranks tell each other before they exchange so much: one integer for each.

By ``all_to_all_single``, or by a gather of those of all for all.

Who then sends, or expects, something else has it shown: of two sizes that do not fit it is the one nobody was told of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from rankdrill.step import ANNOUNCED

__all__ = ["Announced"]


class Announced:
    """The newest counts on one group."""

    __slots__ = ("_heard", "_told")

    def __init__(self) -> None:
        self._told: list[int] = []
        self._heard: Callable[[], list[int]] | None = None

    def note(self, op: str, args: dict[str, Any], members: int, place: int) -> bool:
        """Take in the arguments of `op`, for the member at `place`, if it is such an exchange, in main memory.

        What is heard by it is read when it is asked for, or when it is to `keep`, whichever comes first: not before the
        call is over.
        """
        if op == "all_to_all_single":
            return self._note_exchange(args, members)
        return self._note_gather(args, members, place)

    def keep(self) -> None:
        """Read what was heard, which the rank may change from now on."""
        assert self._heard is not None
        heard = self._heard()
        self._heard = lambda: heard

    def _note_exchange(self, args: dict[str, Any], members: int) -> bool:
        if args.get("input_splits") or args.get("output_splits"):
            return False
        told, heard = (_counts(args.get(name), members) for name in ("tensors", "outputs"))
        if told is None or heard is None:
            return False
        self._told, self._heard = told.tolist(), heard.tolist
        return True

    def _note_gather(self, args: dict[str, Any], members: int, place: int) -> bool:
        given, all_ = args.get("tensors"), args.get("outputs")
        if isinstance(given, list) and isinstance(all_, list) and len(given) == len(all_) == 1:
            given, all_ = given[0], all_[0]
        told = _counts(given, members)
        if told is None:
            return False
        given = all_ if isinstance(all_, list) else [all_]
        rows = [_counts(row, members if isinstance(all_, list) else members * members) for row in given]
        known = [row for row in rows if row is not None]
        if len(known) < len(rows) or sum(row.numel() for row in known) != members * members:
            return False
        self._told, self._heard = told.tolist(), partial(_column, known, members, place)
        return True

    def unlike(self, sent: tuple[int, ...], received: tuple[int, ...]) -> str:
        """What was announced, in words, where that is not what is now sent and received, or the other way round."""
        if self._heard is None or not sent or not received:
            return ""
        told, heard = tuple(self._told), tuple(self._heard())
        if {(sent, received), (received, sent)} & {(told, heard)}:
            return ""
        return f"where sent {_listed(told)} received {_listed(heard)}{ANNOUNCED}"


def _counts(tensor: Any, members: int) -> torch.Tensor | None:
    if not isinstance(tensor, torch.Tensor) or tensor.numel() != members or tensor.device.type != "cpu":
        return None
    return None if tensor.is_floating_point() or tensor.is_complex() else tensor.detach().flatten()


def _column(rows: list[torch.Tensor], members: int, place: int) -> list[int]:
    """What is for the member at `place`, of what each has gathered for all."""
    return [int(count) for count in torch.cat(rows).view(members, members)[:, place]]


def _listed(counts: tuple[int, ...]) -> str:
    return ",".join(map(str, counts))
