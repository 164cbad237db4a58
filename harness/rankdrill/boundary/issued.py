"""Handles of calls that went the beaten path, in C: what is asked of them seldom is in Python, as that of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.reducers import WaitsAtTheEnd
from rankdrill.boundary.regions import Buffers, Region
from rankdrill.boundary.torch_seam import plainly
from rankdrill.boundary.work import NO_TIMEOUT, TrackedWork
from rankdrill.native import hot
from rankdrill.step import Step

if TYPE_CHECKING:
    from rankdrill.boundary.group_calls import CallingGroup

__all__ = ["BeatenHandle", "BeatenWork"]


class _Issued(Protocol):
    """As in native/issued.c; it is lost with the work that holds it."""

    inner: Any
    boundary: Boundary
    record: int
    group: CallingGroup
    patience_ms: int
    over: bool

    def settle(self) -> None: ...


_Held: Any = object if hot is None else hot.Held


class BeatenHandle(_Held):  # type: ignore[misc]  # whose base is any
    """As `rankdrill.boundary.handles.Handle`. Keeps the tensors alive that its work does, and no longer than that."""

    __slots__ = ()

    @property
    def step(self) -> Step:
        return self.habit.step.like(sequence=self.sequence)  # type: ignore[no-any-return]

    @property
    def buffers(self) -> Buffers:
        if self.found is None:
            with plainly():
                regions = [
                    (written, Region(start, end, StorageWeakRef(tensor.untyped_storage())))  # type: ignore[no-untyped-call]
                    for start, end, tensor, written in self.spans()
                ]
            inputs = tuple(region for written, region in regions if not written)
            self.found = Buffers(inputs, tuple(region for written, region in regions if written))
        return self.found  # type: ignore[no-any-return]

    def loosen(self) -> None:
        """Its work is lost: say where the tensors lie, whether or not that is theirs for long."""
        assert self.buffers is self.found


class BeatenWork(TrackedWork):
    """A `TrackedWork` of which all that is known is `issued`, which whoever makes it sets."""

    issued: _Issued
    _arrived = None
    __init__ = dist.Work.__init__  # type: ignore[assignment]  # nothing else: it is made at each call

    if hot is not None:
        wait = hot.Waiting(TrackedWork.wait, NO_TIMEOUT)

    @property
    def inner(self) -> Any:  # type: ignore[override]
        return self.issued.inner

    @property
    def _boundary(self) -> Boundary:  # type: ignore[override]
        return self.issued.boundary

    @property
    def _record(self) -> int:  # type: ignore[override]
        return self.issued.record

    @property
    def _patience(self) -> float:  # type: ignore[override]
        return self.issued.patience_ms / 1000

    @property
    def _at_the_end(self) -> WaitsAtTheEnd:  # type: ignore[override]
        return self.issued.group.waits_at_the_end

    @property
    def _over(self) -> bool:  # type: ignore[override]
        return self.issued.over

    @_over.setter
    def _over(self, over: bool) -> None:
        self.issued.over = over

    def _settle(self) -> None:
        self.issued.settle()
