"""What ranks tell each other of a message before it comes: a header of a few integers, the message right before.

Of two sizes that do not fit it is the one that the header does not have: both ends know that.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Headers"]

MOST = 8  # integers in a header
_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.uint8})


class Headers:
    """The newest message of each peer, and to each, if it was a header."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], torch.Tensor] = {}

    def told(self, op: str, peer: int) -> tuple[int, ...]:
        """What the message before has said, to or from `peer`; nothing if it was no header."""
        if not self._newest:
            return ()
        header = self._newest.pop((op, peer), None)
        return tuple(header.flatten().tolist()) if header is not None else ()

    def note(self, op: str, peer: int, tensors: Any, *, sent: bool) -> None:
        """This is about to be `sent`, or received: then its values are there once somebody asks for the next one's."""
        tensor = tensors[0] if isinstance(tensors, list) and len(tensors) == 1 else tensors
        if not isinstance(tensor, torch.Tensor) or tensor.dtype not in _INTEGERS or not 0 < tensor.numel() <= MOST:
            return
        if tensor.device.type == "cpu":
            self._newest[op, peer] = tensor.detach().clone() if sent else tensor.detach()
