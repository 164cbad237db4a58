"""Handles of calls that went the beaten path, in C: what is seldom asked of them is in Python, as all is of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.modes_seam import plainly
from rankdrill.boundary.reducers import WaitsAtTheEnd
from rankdrill.boundary.regions import Buffers, Region
from rankdrill.boundary.work import NO_TIMEOUT, TrackedWork
from rankdrill.native import hot
from rankdrill.step import Step

if TYPE_CHECKING:
    from rankdrill.boundary.group_calls import CallingGroup
    from rankdrill.boundary.habits import Habit

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


if TYPE_CHECKING:

    class _Held:
        habit: Habit
        sequence: int
        found: Buffers | None

        def spans(self) -> list[tuple[int, int, torch.Tensor, bool]]: ...

else:
    _Held = object if hot is None else hot.Held


class BeatenHandle(_Held):
    """As `rankdrill.boundary.handles.Handle`. Keeps the tensors alive that its work does, and no longer than that."""

    __slots__ = ()

    @property
    def step(self) -> Step:
        return self.habit.step.like(sequence=self.sequence)

    @property
    def buffers(self) -> Buffers:
        found = self.found
        if found is None:
            with plainly():
                regions = [
                    (written, Region(start, end, StorageWeakRef(tensor.untyped_storage())))  # type: ignore[no-untyped-call]
                    for start, end, tensor, written in self.spans()
                ]
            inputs = tuple(region for written, region in regions if not written)
            found = self.found = Buffers(inputs, tuple(region for written, region in regions if written))
        return found

    def loosen(self) -> None:
        """Its work is lost: say where the tensors lie, whether or not that is theirs for long."""
        assert self.buffers is self.found


class BeatenWork(TrackedWork):
    """A `TrackedWork` of which all that is known is `issued`, which whoever makes it sets."""

    issued: _Issued
    _arrived = None
    __init__ = dist.Work.__init__  # nothing else: it is made at each call

    if hot is not None:
        wait = hot.Waiting(TrackedWork.wait, NO_TIMEOUT)

    @property
    def inner(self) -> Any:
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
    def _over(self) -> bool:
        return self.issued.over

    @_over.setter
    def _over(self, over: bool) -> None:
        self.issued.over = over

    def _settle(self) -> None:
        self.issued.settle()
