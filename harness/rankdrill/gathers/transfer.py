"""Moving the payloads, sized by what was agreed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from rankdrill.gathers import torch_seam
from rankdrill.gathers.call import Call
from rankdrill.gathers.channel import LineDownError, bytes_of
from rankdrill.gathers.outcomes import Kind, describe
from rankdrill.gathers.slots import Slot
from rankdrill.gathers.wire import NONCE_BYTES as FRAME_NONCE_BYTES
from rankdrill.gathers.wire import Payload, decode

__all__ = ["decode_all", "to_all", "to_all_padded", "to_one"]

# Broadcasts under way at once. Four exact broadcasts of 16 MiB in flight took 35-78 ms, one all_gather 440 ms (gloo,
# 4 ranks, torch 2.13), and equal sizes or not, nobody receives padding.
IN_FLIGHT = 32

_POLL_S = 0.0002


def to_all(call: Call, slots: Sequence[Slot], payload: Payload | None) -> list[memoryview]:
    """Every rank's frame, by rank, on every rank. Frames that came with the slots are not sent again."""
    channel = call.channel
    frames = [memoryview(slot.inline) for slot in slots]
    large = [slot.rank for slot in slots if not slot.inline]
    for begin in range(0, len(large), IN_FLIGHT):
        batch = large[begin : begin + IN_FLIGHT]
        blocks = {rank: _block(call, slots[rank], payload) for rank in batch}
        works = [channel.broadcast(blocks[rank], rank, call.wait_s) for rank in batch] if channel.size > 1 else []
        channel.finish(works, call.wait_s)
        for rank, block in blocks.items():
            frames[rank] = bytes_of(block)
    return frames


def to_one(call: Call, slots: Sequence[Slot], payload: Payload | None, destination: int) -> list[memoryview]:
    """Every rank's frame on channel rank `destination`; an empty list elsewhere. A sender holds its own frame only."""
    channel, me = call.channel, call.channel.rank
    if me != destination:
        if not slots[me].inline:
            channel.finish([channel.send(_block(call, slots[me], payload), destination, tag=0)], call.wait_s)
        return []
    frames = [memoryview(slot.inline) for slot in slots]
    large = [slot.rank for slot in slots if not slot.inline]
    blocks = {rank: _block(call, slots[rank], payload) for rank in large}
    channel.finish([channel.receive(blocks[rank], rank, tag=0) for rank in large if rank != me], call.wait_s)
    for rank, block in blocks.items():
        frames[rank] = bytes_of(block)
    return frames


def to_all_padded(
    call: Call, slots: Sequence[Slot], payload: Payload | None, group: Any, device: torch.device
) -> list[memoryview]:
    """Every rank's frame by one all_gather of `group` on `device`, each padded to the largest."""
    frames = [memoryview(slot.inline) for slot in slots]
    widest = max((slot.size for slot in slots if not slot.inline), default=0)
    if not widest or call.channel.size == 1:
        return frames if not widest else to_all(call, slots, payload)
    mine = torch.empty(widest, dtype=torch.uint8, device=device)
    own = slots[call.channel.rank]
    if not own.inline:
        mine[: own.size].copy_(_block(call, own, payload))
    received = torch.empty(widest * len(slots), dtype=torch.uint8, device=device)
    options = torch_seam.AllgatherOptions()
    work = call.channel.start(lambda: group.allgather([list(torch.split(received, widest))], [mine], options))
    _wait_for_device(work, call.wait_s)
    for slot in slots:
        if not slot.inline:
            start = slot.rank * widest
            frames[slot.rank] = bytes_of(received[start : start + slot.size].cpu())
    return frames


def decode_all(call: Call, slots: Sequence[Slot], frames: Sequence[memoryview]) -> list[Any]:
    """The objects in `frames`, by rank; a frame that does not load becomes this rank's trouble."""
    values: list[Any] = []
    for slot, frame in zip(slots, frames, strict=False):
        values.append(load(call, slot, frame))
    return values


def load(call: Call, slot: Slot, frame: memoryview) -> Any:
    """The object in one frame, or None with this rank's trouble reported."""
    try:
        return None if call.trouble else decode(frame, slot.nonce[:FRAME_NONCE_BYTES])
    except MemoryError as error:
        call.report(Kind.DECODE, f"no memory for the payload of rank {call.channel.labels[slot.rank]}: {error}")
    except Exception as error:
        who = call.channel.labels[slot.rank]
        call.report(Kind.DECODE, f"payload of rank {who} does not load: {describe(error)}", culprit=slot.rank)
    return None


def _block(call: Call, slot: Slot, payload: Payload | None) -> torch.Tensor:
    """Memory for one rank's frame, filled if the frame is ours."""
    block = torch.empty(slot.size, dtype=torch.uint8)
    if slot.rank == call.channel.rank:
        assert payload is not None
        payload.write_into(bytes_of(block), call.frame_nonce)
    return block


def _wait_for_device(work: Any, timeout_s: float) -> None:
    """Wait for a collective on a device; `Work.wait` of NCCL returns before it is over and knows no timeout."""
    deadline = time.monotonic() + timeout_s
    while not work.is_completed():
        if time.monotonic() > deadline:
            raise LineDownError(f"a transfer on the device took longer than {timeout_s} s")
        time.sleep(_POLL_S)
    work.wait()
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
