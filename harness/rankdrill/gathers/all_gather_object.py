"""`all_gather_object`: torch's signature and contract, and all ranks fail together."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from rankdrill.errors import UsageError
from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.receiving_list import fill, wrong_with
from rankdrill.gathers.agreement.registry import channel_of, is_member
from rankdrill.gathers.transfer.moves import at_all, load_all

__all__ = ["all_gather_object"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called


def all_gather_object(
    object_list: list[Any],
    obj: Any,
    group: Any = None,
    *,
    weights_only: bool = False,
    timeout: float | None = None,
) -> None:
    """Fill `object_list` with every rank's `obj`, in group rank order.

    `object_list` has an entry for each rank of the group, or more, and is changed only if all ranks succeed. What
    arrives is a copy, this rank's own entry included. With `weights_only` nothing is unpickled but by torch's safe
    unpickler. `timeout`, in seconds and by default that of the group, bounds each wait for the others. On a rank
    outside `group` nothing happens, as in torch.

    Raises on all ranks together: ArgumentMismatch (a list that is too short or cannot be written to, different
    `weights_only`), EncodeError, DecodeError, Desynchronized, PeerLost. Raises UsageError where torch.distributed is
    not initialised.
    """
    if not dist.is_initialized():
        raise UsageError("all_gather_object: call torch.distributed.init_process_group first")
    if not is_member(group):
        return
    channel = channel_of(group)
    with GatherCall(channel, "all_gather_object", timeout, weights_only=weights_only, owned=True) as call:
        cause = call.attempt(TroubleKind.ARGUMENT, lambda: wrong_with("object_list", object_list, channel.size))
        if cause:
            call.report(TroubleKind.ARGUMENT, cause)
        payload = call.attempt(TroubleKind.ENCODE, lambda: call.coding.encode(obj))
        slots = call.agree(payload, by_tray=True)
        with at_all(call, slots, payload) as loaders:
            values = load_all(call, slots, loaders)
            call.confirm()
    fill(object_list, values)
