"""Memory that is lent to gloo for a transfer, in tensors of its own that outlive the group.

A thread of gloo may be letting go of a tensor when the transfer is over. Torch 2.6 destroys a group with the GIL held,
and waits there for that thread, which takes the GIL to free a tensor that Python has let go of before. So the tensors
go after their group, but the memory is taken out of them as soon as it has arrived.
"""

from __future__ import annotations

import torch

__all__ = ["Lent"]

# Of those that have arrived so many are kept, the newest: more than are under way at a time.
MOST_KEPT = 64


class Lent:
    """What one channel has lent."""

    def __init__(self) -> None:
        self._under_way: list[torch.Tensor] = []
        self.arrived: list[torch.Tensor] = []

    def lend(self, tensor: torch.Tensor) -> torch.Tensor:
        """Another tensor with the same memory."""
        lent = tensor.detach()
        self._under_way.append(lent)
        return lent

    def take_back(self) -> None:
        """All of it has arrived."""
        for lent in self._under_way:
            lent.set_()  # type: ignore[call-overload]  # to no memory
        self.arrived = [*self.arrived, *self._under_way][-MOST_KEPT:]
        self._under_way = []

    def give_up(self) -> list[torch.Tensor]:
        """All tensors, whether they have arrived or not; from here on there are none."""
        given, self._under_way, self.arrived = [*self._under_way, *self.arrived], [], []
        return given
