"""The payloads of one call between machines: each crosses once per machine, into a segment that all ranks there map.

A payload's own rank sends it to one rank of every other machine, its *porter* there; porters are dealt out evenly, so
that every rank's line is used. What a porter takes in lies in segments of its own, which it lists in one more, for its
neighbours to find.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rankdrill.gathers.agreement.call import GatherCall, Stored
from rankdrill.gathers.agreement.slots import Slot
from rankdrill.gathers.encoding.wire import FRAME_NONCE_BYTES, Encoded
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.local import segment

__all__ = ["Relay"]

# What a rank announces: the segment with its own payload, and the one that lists those it takes in.
_PLACES = struct.Struct("<II")
_NOWHERE = 0  # where a payload is small, and nobody looks for it


class Relay:
    """A context manager; `loader` is how a payload is had after `carry`, where that said it was possible.

    Entering lays down what this rank brings and makes room for what it takes in, and tells the others. `possible` says,
    equally on all ranks, whether all of them could.
    """

    def __init__(self, call: GatherCall, slots: Sequence[Slot], payload: Encoded | None) -> None:
        self._call = call
        self._slots = slots
        self._large = [slot.rank for slot in slots if not slot.inline]
        self._payload = payload if call.channel.rank in self._large else None
        self._held: dict[int, int] = {}  # descriptors by the rank whose payload is there
        self._table: int | None = None
        self._places: list[Slot] = []
        self._tables: dict[int, list[int]] = {}

    def __enter__(self) -> Relay:
        try:
            self._places = self._call.announce(self._lay_down())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def possible(self) -> bool:
        """Whether every rank has laid down its payload and can take in what it is the porter of."""
        return all(slot.identity.pid for slot in self._places)

    def carry(self) -> None:
        """Send this rank's payload to its porters and take in others'; returns when all have. Raises LineDownError."""
        channel, me = self._call.channel, self._call.channel.rank
        works, blocks = [], []
        if me in self._large:
            mine = segment.map_private(self._held[me], self._slots[me].size)
            works += [channel.line.send(mine, self._porter(me, machine), tag=me) for machine in self._others(me)]
        for rank in self._taken_in_by(me):
            blocks.append(segment.map_shared(self._held[rank], self._slots[rank].size))
            works.append(channel.line.receive(blocks[-1], rank, tag=rank))
        channel.line.finish(works, self._call.wait_s)
        self._call.confirm()

    def loader(self, rank: int) -> Callable[[], Any]:
        """What loads the payload of channel rank `rank`."""
        return partial(self._load, self._slots[rank])

    def close(self) -> None:
        """Let go of the segments this rank made; what others have mapped stays theirs."""
        held, self._held = list(self._held.values()), {}
        table, self._table = self._table, None
        for descriptor in [*held, *([] if table is None else [table])]:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _lay_down(self) -> Stored | None:
        """What this rank makes before the others can count on it; None if it cannot."""
        me, nonce = self._call.channel.rank, self._call.frame_nonce
        try:
            if self._payload is not None:
                self._held[me] = segment.create(self._payload, nonce)
            taken = self._taken_in_by(me)
            for rank in taken:
                self._held[rank] = segment.reserve(self._slots[rank].size)
            self._table = segment.table_of([self._held[rank] for rank in taken])
        except (OSError, MemoryError):
            return None
        return Stored(0, _PLACES.pack(self._held.get(me, _NOWHERE), self._table), identify())

    def _load(self, slot: Slot) -> Any:
        me = self._call.channel.rank
        machine = self._call.channel.machine_of(me)
        keeper = slot.rank if slot.rank in machine else self._porter(slot.rank, machine)
        pid, (own, table) = self._places[keeper].identity.pid, _PLACES.unpack_from(self._places[keeper].digest)
        descriptor = own
        if keeper != slot.rank:
            taken = self._taken_in_by(keeper)
            if keeper not in self._tables:
                self._tables[keeper] = segment.read_table(pid, table, len(taken))
            descriptor = self._tables[keeper][taken.index(slot.rank)]
        return segment.load(pid, descriptor, slot.size, slot.nonce[:FRAME_NONCE_BYTES], self._call.coding)

    # ------------------------------------------------------------------------------ who carries what

    def _others(self, rank: int) -> list[tuple[int, ...]]:
        """The machines that `rank` is not on."""
        return [machine for machine in self._call.channel.sharing if rank not in machine]

    def _porter(self, rank: int, machine: tuple[int, ...]) -> int:
        """Who takes in the payload of `rank` on another machine."""
        return machine[self._large.index(rank) % len(machine)]

    def _taken_in_by(self, porter: int) -> list[int]:
        machine = self._call.channel.machine_of(porter)
        return [rank for rank in self._large if rank not in machine and self._porter(rank, machine) == porter]
