"""Where the options of torch's collectives lie in memory: private to torch and pybind11, and found by looking.

Each call is given options of its own, of which four fields are looked at each time. Asking for one as Python does it
goes through pybind11, which looks up types, and for the reduce op makes an object that it notes and forgets again: of
what the watch adds to a call, a third was that. So C reads them where they lie.

Where that is, is worked out anew in each process, and believed of a field only if one place alone shows what was put
there, in all of a good many samples. A field that is not found is asked for as before. Nothing is read here through a
pointer that could be a wrong one: the kernel reads this process's memory for us, and refuses what is none.
`tests/boundary/test_options_seam.py` says which of this torch are found.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist
from torch._C import _distributed_c10d as c

__all__ = ["NOWHERE", "OPTIONS", "Places", "places_of"]

OPTIONS = {
    "all_reduce": "AllreduceOptions",
    "all_reduce_coalesced": "AllreduceCoalescedOptions",
    "broadcast": "BroadcastOptions",
    "reduce": "ReduceOptions",
    "all_gather": "AllgatherOptions",
    "all_gather_coalesced": "AllgatherOptions",
    "all_gather_into_tensor": "AllgatherOptions",
    "all_gather_into_tensor_coalesced": "AllgatherOptions",
    "gather": "GatherOptions",
    "scatter": "ScatterOptions",
    "reduce_scatter": "ReduceScatterOptions",
    "reduce_scatter_tensor": "ReduceScatterOptions",
    "reduce_scatter_tensor_coalesced": "ReduceScatterOptions",
    "all_to_all": "AllToAllOptions",
    "barrier": "BarrierOptions",
}
"""By op, the class of torch's that its options are of."""
NOWHERE = -1
_LOOKED_AT = 128  # bytes of each: some more than any has
_WORD = 8
_POINTER_AT = object.__basicsize__  # pybind11 keeps the pointer to what is C++'s right behind what is Python's
_SWITCHED = (0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0)  # no period: what memory is left with after use may have one
_REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
_ROOTS = (0, 1, 3, 2, 70_000, 5)
_MILLISECONDS = (1, 90_000, 7, 3_600_000, 1_800_000)


class Places(NamedTuple):
    """Of options of one class, how many bytes into them each field lies; `NOWHERE` where that is not known."""

    options: type
    asynchronous: int  # a byte
    reduction: int  # a byte, the op's number in torch's enum
    root: int  # a word of 8 bytes
    timeout: int  # a word: milliseconds, less than one for the group's own


def places_of(op: str) -> Places:
    """Where the options of `op` have what is asked of them."""
    options: type = getattr(c, OPTIONS.get(op, ""), type(None))
    return _places_in(options)


@functools.cache
def _places_in(options: Any) -> Places:
    return Places(
        options,
        _place(options, "asyncOp", _SWITCHED, 1, bool),
        _place(options, "reduceOp", range(len(_REDUCTIONS)), 1, lambda each: getattr(dist.ReduceOp, _REDUCTIONS[each])),
        _place(options, "rootRank", _ROOTS, _WORD, int),
        _place(options, "timeout", _MILLISECONDS, _WORD, lambda each: timedelta(milliseconds=each)),
    )


def _place(options: type, field: str, kept: Sequence[int], width: int, put: Callable[[int], Any]) -> int:
    """Where options keep that `field`, as a number of `width` bytes, if one place has `kept` where `put` was put."""
    if not hasattr(options, field):
        return NOWHERE
    try:
        samples = [_with(options, field, put(each)) for each in kept]  # all of them there at once, each somewhere else
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            lying = [_lying_in(memory.fileno(), each) for each in samples]
    except (OSError, TypeError, ValueError, AttributeError):  # no such file, memory, or other options than these
        return NOWHERE
    expected = [each.to_bytes(width, "little") for each in kept]
    found = [
        place
        for place in range(0, _LOOKED_AT, width)
        if all(each[place : place + width] == number for each, number in zip(lying, expected, strict=True))
    ]
    return found[0] if len(found) == 1 else NOWHERE


def _with(options: type, field: str, value: Any) -> Any:
    made = options()
    setattr(made, field, value)
    return made


def _lying_in(memory: int, options: Any) -> bytes:
    """What lies where the C++ part of `options` does; `memory` is a file of all of this process's."""
    pointer = int.from_bytes(os.pread(memory, _WORD, id(options) + _POINTER_AT), "little")
    return os.pread(memory, _LOOKED_AT, pointer)
