"""The segments of one call among the ranks of one machine: each lays down its payload and tells where."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rankdrill.errors import describe
from rankdrill.gathers.agreement.call import GatherCall, Stored
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.slots import Slot
from rankdrill.gathers.encoding.wire import FRAME_NONCE_BYTES, Encoded
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.local import segment

__all__ = ["Segments"]

_DESCRIPTOR = struct.Struct("<I")


class Segments:
    """A context manager: this rank's segment, if its payload is large, and the others', among the ranks `machine`.

    Entering lays down this rank's payload and tells the others; `loader` is how a payload is had then. The payload of
    a rank that cannot lay down its own is missing from `laid`; if they are `required`, that is its trouble.
    """

    def __init__(
        self,
        call: GatherCall,
        slots: Sequence[Slot],
        payload: Encoded | None,
        machine: Sequence[int],
        *,
        required: bool = False,
    ) -> None:
        me = call.channel.rank
        self._call = call
        self._required = required
        self._payload = None if slots[me].inline or me not in machine else payload
        self._mine: int | None = None
        self.laid: dict[int, Slot] = {}

    def __enter__(self) -> Segments:
        try:
            stored = self._lay_down()
            self.laid = {slot.rank: slot for slot in self._call.announce(stored) if slot.identity.pid}
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def loader(self, rank: int) -> Callable[[], Any]:
        """What loads the payload of channel rank `rank`."""
        slot = self.laid[rank]
        descriptor = _DESCRIPTOR.unpack_from(slot.digest)[0]
        nonce = slot.nonce[:FRAME_NONCE_BYTES]
        return partial(segment.load, slot.identity.pid, descriptor, slot.size, nonce, self._call.coding)

    def close(self) -> None:
        """Let go of this rank's own segment; what others have mapped stays theirs."""
        mine, self._mine = self._mine, None
        if mine is not None:
            os.close(mine)

    def _lay_down(self) -> Stored | None:
        if self._payload is None:
            return None
        try:
            self._mine = segment.create(self._payload, self._call.frame_nonce)
        except (OSError, MemoryError) as error:
            if self._required:
                self._call.report(TroubleKind.STORAGE, f"no shared memory for its payload: {describe(error)}")
            return None
        return Stored(self._payload.nbytes, _DESCRIPTOR.pack(self._mine), identify())
