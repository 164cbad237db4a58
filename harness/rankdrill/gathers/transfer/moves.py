"""Moving the payloads, sized by what was agreed: through shared memory within a machine, over the network between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy
import torch

from rankdrill.errors import describe
from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.slots import Slot
from rankdrill.gathers.encoding.wire import FRAME_NONCE_BYTES, Encoded, bytes_of
from rankdrill.gathers.host.pages import fresh
from rankdrill.gathers.transfer.between_machines import Relay
from rankdrill.gathers.transfer.within_machine import Segments

__all__ = [
    "Loader",
    "at_all",
    "at_all_by_segments",
    "at_all_over_the_network",
    "at_one",
    "load",
    "load_all",
    "of_frame",
    "over_the_network",
]

Loader: TypeAlias = Callable[[], Any]
"""What makes an object of a payload that has come."""

# Broadcasts under way at once. Four exact broadcasts of 16 MiB in flight took 35-78 ms, one all_gather 440 ms (gloo,
# 4 ranks, torch 2.13), and equal sizes or not, nobody receives padding.
IN_FLIGHT = 32


@contextmanager
def at_all(call: GatherCall, slots: Sequence[Slot], payload: Encoded | None) -> Iterator[list[Loader]]:
    """Every rank's payload, by rank, on every rank; `confirm` before leaving.

    Payloads that came with the slots are not sent again. Those that go to another machine go there once.
    """
    machines = call.channel.sharing
    if not _large(slots) or len(machines) == call.channel.size:
        yield over_the_network(call, slots, payload, _large(slots))
    elif len(machines) > 1:
        with Relay(call, slots, payload) as relay:
            yield _relayed(call, slots, payload, relay)
    else:
        with Segments(call, slots, payload, machines[0]) as segments:
            yield _and_laid(segments, over_the_network(call, slots, payload, _missing(slots, segments)))
            call.channel.line.close_bulk()


@contextmanager
def at_all_over_the_network(call: GatherCall, slots: Sequence[Slot], payload: Encoded | None) -> Iterator[list[Loader]]:
    """As `at_all`, over the network also on one machine."""
    yield over_the_network(call, slots, payload, _large(slots))
    call.channel.line.close_bulk()


@contextmanager
def at_all_by_segments(call: GatherCall, slots: Sequence[Slot], payload: Encoded | None) -> Iterator[list[Loader]]:
    """As `at_all`, through shared memory or not at all."""
    if call.channel.size == 1 or not _large(slots):
        yield over_the_network(call, slots, payload, _large(slots))
        return
    with Segments(call, slots, payload, range(call.channel.size), required=True) as segments:
        yield [segments.loader(slot.rank) if slot.rank in segments.laid else of_frame(call, slot) for slot in slots]


@contextmanager
def at_one(
    call: GatherCall, slots: Sequence[Slot], payload: Encoded | None, destination: int
) -> Iterator[list[Loader]]:
    """Every rank's payload on channel rank `destination`, nothing elsewhere; `confirm` before leaving.

    A sender holds its own payload only.
    """
    machine = call.channel.machine_of(destination)
    if len(machine) == 1 or not set(machine) & set(_large(slots)):
        yield _sent_to_one(call, slots, payload, destination, _large(slots))
        return
    with Segments(call, slots, payload, machine) as segments:
        loaders = _sent_to_one(call, slots, payload, destination, _missing(slots, segments))
        yield _and_laid(segments, loaders) if loaders else []
        call.channel.line.close_bulk()


def _large(slots: Sequence[Slot]) -> list[int]:
    """The ranks whose payloads did not come with their slots."""
    return [slot.rank for slot in slots if not slot.inline]


def _missing(slots: Sequence[Slot], segments: Segments) -> list[int]:
    """The ranks whose payloads are neither in their slots nor in `segments`."""
    return [rank for rank in _large(slots) if rank not in segments.laid]


def _and_laid(segments: Segments, loaders: list[Loader]) -> list[Loader]:
    """`loaders`, but for what lies in `segments` those."""
    return [segments.loader(rank) if rank in segments.laid else loader for rank, loader in enumerate(loaders)]


def _relayed(call: GatherCall, slots: Sequence[Slot], payload: Encoded | None, relay: Relay) -> list[Loader]:
    if not relay.possible:
        return over_the_network(call, slots, payload, _large(slots))
    call.channel.line.open_bulk(call.wait_s)
    relay.carry()
    return [of_frame(call, slot) if slot.inline else relay.loader(slot.rank) for slot in slots]


def over_the_network(
    call: GatherCall, slots: Sequence[Slot], payload: Encoded | None, large: Sequence[int]
) -> list[Loader]:
    """Loaders of what came with the slots, and of the payloads of the ranks `large`, which are broadcast now."""
    channel = call.channel
    loaders = [of_frame(call, slot) for slot in slots]
    if large:
        channel.line.open_bulk(call.wait_s)
    for begin in range(0, len(large), IN_FLIGHT):
        batch = large[begin : begin + IN_FLIGHT]
        blocks = {rank: _block(call, slots[rank], payload) for rank in batch}
        works = [channel.line.broadcast(blocks[rank], rank, call.wait_s) for rank in batch] if channel.size > 1 else []
        channel.line.finish_together(works, call.wait_s)
        for rank, block in blocks.items():
            loaders[rank] = of_frame(call, slots[rank], bytes_of(block))
    return loaders


def _sent_to_one(
    call: GatherCall, slots: Sequence[Slot], payload: Encoded | None, destination: int, large: Sequence[int]
) -> list[Loader]:
    channel, me = call.channel, call.channel.rank
    if large:
        channel.line.open_bulk(call.wait_s)
    if me != destination:
        if me in large:
            channel.line.finish([channel.line.send(_block(call, slots[me], payload), destination, tag=0)], call.wait_s)
        return []
    loaders = [of_frame(call, slot) for slot in slots]
    blocks = {rank: _block(call, slots[rank], payload) for rank in large}
    channel.line.finish([channel.line.receive(blocks[rank], rank, tag=0) for rank in large if rank != me], call.wait_s)
    for rank, block in blocks.items():
        loaders[rank] = of_frame(call, slots[rank], bytes_of(block))
    return loaders


def of_frame(call: GatherCall, slot: Slot, frame: memoryview | None = None) -> Loader:
    """What loads the payload of `slot` from `frame`, which by default came with the slot."""
    nonce = slot.nonce[:FRAME_NONCE_BYTES]
    frame = memoryview(slot.inline) if frame is None else frame
    return partial(call.coding.decode_copied if slot.in_tray else call.coding.decode, frame, nonce)


def load_all(call: GatherCall, slots: Sequence[Slot], loaders: list[Loader]) -> list[Any]:
    """The objects, by rank; one that does not load becomes this rank's trouble. Uses `loaders` up.

    What an object was loaded from is freed before the next is loaded, unless the object lies in it.
    """
    loaders.reverse()
    with call.channel.at_device():
        return [_load(call, slot, loaders.pop()) for slot in slots if loaders]


def load(call: GatherCall, slot: Slot, loader: Loader) -> Any:
    """One object, or None with this rank's trouble reported."""
    with call.channel.at_device():
        return _load(call, slot, loader)


def _load(call: GatherCall, slot: Slot, loader: Loader) -> Any:
    try:
        return None if call.trouble else loader()
    except MemoryError as error:
        call.report(TroubleKind.DECODE, f"no memory for the payload of rank {call.channel.labels[slot.rank]}: {error}")
    except Exception as error:
        who = call.channel.labels[slot.rank]
        call.report(TroubleKind.DECODE, f"payload of rank {who} does not load: {describe(error)}", culprit=slot.rank)
    return None


def _block(call: GatherCall, slot: Slot, payload: Encoded | None) -> torch.Tensor:
    """Memory for one rank's frame, filled if the frame is ours."""
    block = torch.from_numpy(numpy.asarray(fresh(slot.size)))
    if slot.rank == call.channel.rank:
        assert payload is not None
        payload.write_into(bytes_of(block), call.frame_nonce)
    return block
