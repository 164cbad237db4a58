"""Strikes at memory: an allocation that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankdrill.faults.steps import OPS
from rankdrill.faults.strike import Strike, at
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Call, Proceed

__all__ = ["STRIKES"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test


class Oom(Strike):
    name = "oom"
    does = "The step raises MemoryError instead of being taken."
    seen = "Memory that runs out while a payload is pickled, copied or received: MemoryError on one rank."
    on = at({kind: ops for kind, ops in OPS.items() if kind is not Kind.CLOCK})

    def strike(self, call: Call, proceed: Proceed) -> Any:
        raise MemoryError(f"out of memory at {call.step} (planned)")


class CudaOom(Strike):
    name = "cuda_oom"
    does = "The step raises torch.cuda.OutOfMemoryError instead of being taken; no GPU is needed."
    seen = "A GPU whose memory is full when a buffer is made or a collective begins: the error on one rank."
    on = at({kind: OPS[kind] for kind in (Kind.COLLECTIVE, Kind.MEMORY)})

    def strike(self, call: Call, proceed: Proceed) -> Any:
        import torch

        raise torch.cuda.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {call.step.nbytes} bytes (planned)")


STRIKES: tuple[type[Strike], ...] = (Oom, CudaOom)
