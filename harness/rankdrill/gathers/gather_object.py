"""`gather_object`: torch's signature and contract, and all ranks fail together."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from rankdrill.errors import UsageError
from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.channel import Channel
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.receiving_list import fill, wrong_with
from rankdrill.gathers.agreement.registry import channel_of, is_member
from rankdrill.gathers.transfer.moves import at_one, load_all

__all__ = ["gather_object"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
    *,
    weights_only: bool = False,
    timeout: float | None = None,
) -> None:
    """Fill `object_gather_list` on one rank with every rank's `obj`, in group rank order.

    The receiver is `dst`, a global rank, or `group_dst`, a rank of `group`; by default global rank 0. There
    `object_gather_list` has an entry for each rank of the group, or more; on the others it is None or empty. Nobody but
    the receiver holds more than its own payload. With `weights_only` nothing is unpickled but by torch's safe
    unpickler. `timeout`, in seconds and by default that of the group, bounds each wait for the others. On a rank
    outside `group` nothing happens, as in torch.

    Raises on all ranks together: ArgumentMismatch (no list, one that is too short or cannot be written to, entries
    where none belong, ranks that disagree on the receiver, or one that is no member), EncodeError, DecodeError (also on
    the ranks that only sent), Desynchronized, PeerLost. Raises UsageError where torch.distributed is not initialised.
    """
    if not dist.is_initialized():
        raise UsageError("gather_object: call torch.distributed.init_process_group first")
    if not is_member(group):
        return
    channel = channel_of(group)
    with GatherCall(channel, "gather_object", timeout, weights_only=weights_only, owned=True) as call:
        receiver = call.attempt(TroubleKind.ARGUMENT, lambda: _receiver(channel, dst, group_dst))
        call.arguments = f"group_dst={receiver}"
        if isinstance(receiver, str):
            call.report(TroubleKind.ARGUMENT, receiver)
        cause = call.attempt(TroubleKind.ARGUMENT, lambda: _wrong_list(channel, receiver, object_gather_list))
        if cause:
            call.report(TroubleKind.ARGUMENT, cause)
        payload = call.attempt(TroubleKind.ENCODE, lambda: call.coding.encode(obj))
        slots = call.agree(payload, by_tray=True)
        assert isinstance(receiver, int)
        with at_one(call, slots, payload, receiver) as loaders:
            values = load_all(call, slots, loaders)
            call.confirm(all_read=False)
    if channel.rank == receiver:
        fill(object_gather_list, values)


def _receiver(channel: Channel, dst: int | None, group_dst: int | None) -> int | str:
    """The receiver's rank in the group, or what is wrong with it."""
    if dst is not None and group_dst is not None:
        return f"dst={dst} and group_dst={group_dst}: give one of them"
    if group_dst is not None:
        if group_dst in range(channel.size):
            return group_dst
        return f"group_dst={group_dst}: the group has ranks 0 to {channel.size - 1}"
    wanted = 0 if dst is None else dst
    if wanted in channel.members:
        return channel.members.index(wanted)
    return f"dst={wanted}: no member of the group, which has global ranks {list(channel.members)}"


def _wrong_list(channel: Channel, receiver: int | str | None, given: list[Any] | None) -> str | None:
    if channel.rank != receiver:
        unwanted = given is not None and len(given) > 0
        return "object_gather_list must be None or empty on a rank that does not receive" if unwanted else None
    if given is None:
        return "object_gather_list is missing on the receiving rank"
    return wrong_with("object_gather_list", given, channel.size)
