"""Moving the payloads, sized by what was agreed: through shared memory on one machine, else over the network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy
import torch

from rankdrill.gathers import torch_seam
from rankdrill.gathers.call import Call
from rankdrill.gathers.channel import LineDownError
from rankdrill.gathers.outcomes import Kind, describe
from rankdrill.gathers.reading import fresh
from rankdrill.gathers.segments import Segments, are_possible
from rankdrill.gathers.slots import Slot
from rankdrill.gathers.wire import NONCE_BYTES as FRAME_NONCE_BYTES
from rankdrill.gathers.wire import Payload, bytes_of

__all__ = [
    "Loader",
    "at_all",
    "at_all_by_segments",
    "at_all_over_the_network",
    "at_all_padded",
    "at_one",
    "load",
    "load_all",
    "of_frame",
]

Loader: TypeAlias = Callable[[], Any]
"""What makes an object of a payload that has come."""

# Broadcasts under way at once. Four exact broadcasts of 16 MiB in flight took 35-78 ms, one all_gather 440 ms (gloo,
# 4 ranks, torch 2.13), and equal sizes or not, nobody receives padding.
IN_FLIGHT = 32

_POLL_S = 0.0002


@contextmanager
def at_all(call: Call, slots: Sequence[Slot], payload: Payload | None) -> Iterator[list[Loader]]:
    """Every rank's payload, by rank, on every rank; `confirm` before leaving.

    Payloads that came with the slots are not sent again.
    """
    if not _by_segments(call, slots):
        yield _over_the_network(call, slots, payload, _large(slots))
        return
    with Segments(call, slots, payload) as segments:
        missing = [rank for rank in _large(slots) if rank not in segments.laid]
        loaders = _over_the_network(call, slots, payload, missing)
        for rank in segments.laid:
            loaders[rank] = segments.loader(rank)
        yield loaders
        call.channel.close_bulk()


@contextmanager
def at_all_over_the_network(call: Call, slots: Sequence[Slot], payload: Payload | None) -> Iterator[list[Loader]]:
    """As `at_all`, over the network also on one machine."""
    yield _over_the_network(call, slots, payload, _large(slots))
    call.channel.close_bulk()


@contextmanager
def at_all_by_segments(call: Call, slots: Sequence[Slot], payload: Payload | None) -> Iterator[list[Loader]]:
    """As `at_all`, through shared memory or not at all."""
    if call.channel.size == 1 or not _large(slots):
        yield _over_the_network(call, slots, payload, _large(slots))
        return
    with Segments(call, slots, payload, required=True) as segments:
        yield [segments.loader(slot.rank) if slot.rank in segments.laid else of_frame(call, slot) for slot in slots]


@contextmanager
def at_one(call: Call, slots: Sequence[Slot], payload: Payload | None, destination: int) -> Iterator[list[Loader]]:
    """Every rank's payload on channel rank `destination`, nothing elsewhere; `confirm` before leaving.

    A sender holds its own payload only.
    """
    here = call.channel.rank == destination
    if not _by_segments(call, slots):
        yield _sent_to_one(call, slots, payload, destination, _large(slots))
        return
    with Segments(call, slots, payload) as segments:
        missing = [rank for rank in _large(slots) if rank not in segments.laid]
        loaders = _sent_to_one(call, slots, payload, destination, missing)
        for rank in segments.laid if here else ():
            loaders[rank] = segments.loader(rank)
        yield loaders
        call.channel.close_bulk()


def _large(slots: Sequence[Slot]) -> list[int]:
    """The ranks whose payloads did not come with their slots."""
    return [slot.rank for slot in slots if not slot.inline]


def _by_segments(call: Call, slots: Sequence[Slot]) -> bool:
    return call.channel.one_host and are_possible() and bool(_large(slots))


def _over_the_network(call: Call, slots: Sequence[Slot], payload: Payload | None, large: Sequence[int]) -> list[Loader]:
    channel = call.channel
    loaders = [of_frame(call, slot) for slot in slots]
    if large:
        channel.open_bulk(call.wait_s)
    for begin in range(0, len(large), IN_FLIGHT):
        batch = large[begin : begin + IN_FLIGHT]
        blocks = {rank: _block(call, slots[rank], payload) for rank in batch}
        works = [channel.broadcast(blocks[rank], rank, call.wait_s) for rank in batch] if channel.size > 1 else []
        channel.finish(works, call.wait_s)
        for rank, block in blocks.items():
            loaders[rank] = of_frame(call, slots[rank], bytes_of(block))
    return loaders


def _sent_to_one(
    call: Call, slots: Sequence[Slot], payload: Payload | None, destination: int, large: Sequence[int]
) -> list[Loader]:
    channel, me = call.channel, call.channel.rank
    if large:
        channel.open_bulk(call.wait_s)
    if me != destination:
        if me in large:
            channel.finish([channel.send(_block(call, slots[me], payload), destination, tag=0)], call.wait_s)
        return []
    loaders = [of_frame(call, slot) for slot in slots]
    blocks = {rank: _block(call, slots[rank], payload) for rank in large}
    channel.finish([channel.receive(blocks[rank], rank, tag=0) for rank in large if rank != me], call.wait_s)
    for rank, block in blocks.items():
        loaders[rank] = of_frame(call, slots[rank], bytes_of(block))
    return loaders


def at_all_padded(
    call: Call, slots: Sequence[Slot], payload: Payload | None, group: Any, device: torch.device
) -> list[Loader]:
    """Every rank's payload by one all_gather of `group` on `device`, each padded to the largest."""
    loaders = [of_frame(call, slot) for slot in slots]
    widest = max((slots[rank].size for rank in _large(slots)), default=0)
    if not widest or call.channel.size == 1:
        return loaders if not widest else _over_the_network(call, slots, payload, _large(slots))
    mine = torch.empty(widest, dtype=torch.uint8, device=device)
    own = slots[call.channel.rank]
    if not own.inline:
        mine[: own.size].copy_(_block(call, own, payload))
    received = torch.empty(widest * len(slots), dtype=torch.uint8, device=device)
    options = torch_seam.AllgatherOptions()
    work = call.channel.start(lambda: group.allgather([list(torch.split(received, widest))], [mine], options))
    _wait_for_device(work, call.wait_s)
    for rank in _large(slots):
        frame = received[rank * widest : rank * widest + slots[rank].size]
        loaders[rank] = of_frame(call, slots[rank], bytes_of(frame.cpu()))
    return loaders


def of_frame(call: Call, slot: Slot, frame: memoryview | None = None) -> Loader:
    """What loads the payload of `slot` from `frame`, which by default came with the slot."""
    frame = memoryview(slot.inline) if frame is None else frame
    return partial(call.coding.decode, frame, slot.nonce[:FRAME_NONCE_BYTES])


def load_all(call: Call, slots: Sequence[Slot], loaders: list[Loader]) -> list[Any]:
    """The objects, by rank; one that does not load becomes this rank's trouble. Uses `loaders` up.

    What an object was loaded from is freed before the next is loaded, unless the object lies in it.
    """
    loaders.reverse()
    return [load(call, slot, loaders.pop()) for slot in slots if loaders]


def load(call: Call, slot: Slot, loader: Loader) -> Any:
    """One object, or None with this rank's trouble reported."""
    try:
        return None if call.trouble else loader()
    except MemoryError as error:
        call.report(Kind.DECODE, f"no memory for the payload of rank {call.channel.labels[slot.rank]}: {error}")
    except Exception as error:
        who = call.channel.labels[slot.rank]
        call.report(Kind.DECODE, f"payload of rank {who} does not load: {describe(error)}", culprit=slot.rank)
    return None


def _block(call: Call, slot: Slot, payload: Payload | None) -> torch.Tensor:
    """Memory for one rank's frame, filled if the frame is ours."""
    block = torch.from_numpy(numpy.asarray(fresh(slot.size)))
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
