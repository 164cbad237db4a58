"""`all_gather_shm`: every rank gets every payload through shared memory of one machine."""

from __future__ import annotations

from typing import Any

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.transfer.moves import at_all_by_segments, load_all

__all__ = ["all_gather_shm"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called


def all_gather_shm(
    data: Any, *, group: Any = None, weights_only: bool = False, timeout: float | None = None
) -> list[Any]:
    """Every rank's `data`, in group rank order, for ranks of one machine.

    What arrives is a copy, this rank's own entry included, but tensors and arrays are not copied: they are mapped
    privately, copy on write, and memory is spent on what is written to. With `weights_only` they are copied, and
    nothing is unpickled but by torch's safe unpickler. `timeout`, in seconds and by default that of the group, bounds
    each wait for the others.

    Raises on all ranks together: StorageError (ranks on several machines, or no shared memory for a payload),
    ArgumentMismatch (different `weights_only`), EncodeError, DecodeError, Desynchronized, PeerLost.
    """
    with GatherCall(channel_of(group), "all_gather_shm", timeout, weights_only=weights_only) as call:
        payload = call.attempt(TroubleKind.ENCODE, lambda: call.coding.encode(data))
        slots = call.agree(payload)
        call.require_one_host("use all_gather_object")
        with at_all_by_segments(call, slots, payload) as loaders:
            values = load_all(call, slots, loaders)
            call.confirm()
    return values
