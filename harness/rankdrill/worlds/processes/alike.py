"""What ranks are going to import because their controller has: once, where they are forked from, and not in each."""

from __future__ import annotations

import sys

__all__ = ["imported_here"]

_PARTS = ("rankdrill.gathers", "rankdrill.faults", "rankdrill.conformance", "rankdrill_strategies")
_OF_TORCH = "torch.distributed."  # `tensor` alone is five hundred modules; `fsdp`, `checkpoint` and `nn` are as dear


def imported_here() -> tuple[str, ...]:
    """Parts of rankdrill and of `torch.distributed` that this process has imported.

    A rank that has to import rankdrill's gathers spends 0.1 s of CPU on it, and 0.3 s on DTensor. It imports more than
    its body asks for: cloudpickle has it import whatever module of torch has a name that the body uses.
    """
    return (
        *(name for name in _PARTS if name in sys.modules),
        *sorted(n for n in sys.modules if n.startswith(_OF_TORCH)),
    )
