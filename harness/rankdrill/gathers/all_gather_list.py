"""`all_gather_list`: every payload in a slot of fixed size, all slots in one collective.

The size of an exchange must be equal on all ranks *before* they can tell each other anything: gloo aborts the process
when sizes differ. So the slot is as large as the ranks agreed in the call before (`Channel.slot_bytes`), and each slot
says what `max_size` its rank wants. The first call with a new `max_size` moves what does not fit yet in a second
exchange; from then on everything is in one. A rank with another `max_size` is found out in that same exchange. Ranks
that share a page need no such room: what is not small lies in their trays, and everything is in one exchange at once.

The collective is an all_gather of slots, the one that every path opens with, so that ranks in different paths meet in
it; the all_reduce of a zeroed buffer that hand-written versions use moves twice the bytes.
"""

from __future__ import annotations

from typing import Any

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.channel import SLOT_BYTES, Channel
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.agreement.slots import HEADER_BYTES
from rankdrill.gathers.encoding.wire import Encoded
from rankdrill.gathers.transfer.moves import at_all, load_all

__all__ = ["all_gather_list"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

# A larger `max_size` is a limit and no longer a buffer: payloads then go by their own size.
LARGEST_SLOT_BYTES = 64 * 1024

# What a frame adds to a payload that fits in its stream, or is one buffer and no stream.
_FRAME_BYTES = 72


def all_gather_list(
    data: Any,
    group: Any = None,
    max_size: int = 16384,
    *,
    weights_only: bool = False,
    timeout: float | None = None,
) -> list[Any]:
    """Every rank's `data`, in group rank order; for many small payloads.

    `max_size` is in bytes, bounds what `data` encodes to, and must be equal on all ranks. What arrives is a copy. With
    `weights_only` nothing is unpickled but by torch's safe unpickler, and a payload has about 1.2 kB more. `timeout`,
    in seconds and by default that of the group, bounds each wait for the others.

    Raises on all ranks together: OversizeError (a ValueError too), ArgumentMismatch (different `max_size` or
    `weights_only`), EncodeError, DecodeError, Desynchronized, PeerLost.
    """
    channel = channel_of(group)
    with GatherCall(channel, "all_gather_list", timeout, f"max_size={max_size!r}", weights_only=weights_only) as call:
        if not isinstance(max_size, int) or max_size <= 0:
            call.report(TroubleKind.ARGUMENT, f"max_size={max_size!r}: give a positive number of bytes")
        payload = call.attempt(TroubleKind.ENCODE, lambda: call.coding.encode(data))
        _check_size(call, payload, max_size)
        slots = call.agree(payload, by_tray=True)
        with at_all(call, slots, payload) as loaders:
            values = load_all(call, slots, loaders)
            call.confirm()
        if channel.line.page is None or weights_only:  # else what does not fit in a slot lies in a tray
            _remember(channel, max_size)
    return values


def _check_size(call: GatherCall, payload: Encoded | None, max_size: int) -> None:
    if payload is not None and call.trouble is None and payload.content_bytes > max_size:
        call.report(
            TroubleKind.OVERSIZE, f"data encodes to {payload.content_bytes} bytes, max_size={max_size}; raise max_size"
        )


def _remember(channel: Channel, max_size: int) -> None:
    """The agreed size of the next exchange; never less than every other path counts on."""
    wanted = HEADER_BYTES + max_size + _FRAME_BYTES
    channel.slot_bytes = max(SLOT_BYTES, wanted) if wanted <= LARGEST_SLOT_BYTES else SLOT_BYTES
