"""Payloads in anonymous shared memory: segments without a name, which only the ranks of a call find.

A segment is a sealed memfd: nobody can change or shorten it, so no reader is ever caught by a page that is gone; it is
not bounded by the size of /dev/shm; and the kernel frees it with its last user, however that ends. Readers open it
through /proc, by the process and descriptor that its rank announced.

What arrives is mapped privately, copy on write: tensors and arrays are independent of everybody's at no cost until they
are written to. Large `bytes` are read straight into their own memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rankdrill.gathers.call import Call, Stored
from rankdrill.gathers.coding import Coding
from rankdrill.gathers.liveness import Identity, identify
from rankdrill.gathers.outcomes import Kind, describe
from rankdrill.gathers.slots import Slot
from rankdrill.gathers.wire import NONCE_BYTES as FRAME_NONCE_BYTES
from rankdrill.gathers.wire import FrameError, Payload, bytes_of, split

__all__ = ["Segments", "are_possible"]

_DESCRIPTOR = struct.Struct("<I")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def are_possible() -> bool:
    """Whether this system has sealed memfds."""
    return hasattr(os, "memfd_create")


class Segments:
    """The segments of one call: this rank's own, if its payload is large, and the others'. A context manager.

    Entering lays down this rank's payload and tells the others; `loader` is how a payload is had then. The payload of
    a rank that cannot lay down its own is missing from `laid`; if they are `required`, that is its trouble.
    """

    def __init__(self, call: Call, slots: Sequence[Slot], payload: Payload | None, *, required: bool = False) -> None:
        self._call = call
        self._required = required
        self._payload = None if slots[call.channel.rank].inline else payload
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
        path = _path(slot.identity, _DESCRIPTOR.unpack_from(slot.digest)[0])
        return lambda: _load(path, slot.size, slot.nonce[:FRAME_NONCE_BYTES], self._call.coding)

    def close(self) -> None:
        """Let go of this rank's own segment; what others have mapped stays theirs."""
        mine, self._mine = self._mine, None
        if mine is not None:
            os.close(mine)

    def _lay_down(self) -> Stored | None:
        if self._payload is None:
            return None
        try:
            self._mine = _create(self._payload, self._call.frame_nonce)
        except (OSError, MemoryError) as error:
            if self._required:
                self._call.report(Kind.STORAGE, f"no shared memory for its payload: {describe(error)}")
            return None
        return Stored(self._payload.nbytes, _DESCRIPTOR.pack(self._mine), identify())


def _create(payload: Payload, nonce: bytes) -> int:
    """A sealed segment with the frame of `payload`. Raises OSError, leaving nothing."""
    descriptor = os.memfd_create("rankdrill", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for piece in payload.pieces(nonce):
            rest = memoryview(piece)
            while rest.nbytes:
                rest = rest[os.write(descriptor, rest) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise
    return descriptor


def _path(owner: Identity, descriptor: int) -> str:
    return f"/proc/{owner.pid}/fd/{descriptor}"


def _load(path: str, size: int, nonce: bytes, coding: Coding) -> Any:
    """The object whose frame is in the segment at `path`. Raises OSError, FrameError, and what loading raises."""
    with open(path, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size != size or found.st_uid != os.geteuid():
            raise FrameError(f"{path} is not the segment that its rank made: {found.st_size} bytes of {size}")
        if fcntl.fcntl(file.fileno(), fcntl.F_GET_SEALS) != _SEALS:
            raise FrameError(f"{path} is not sealed")
        # Not `mmap.mmap`, which keeps a descriptor for as long as the memory lives. But `from_file` leaves one open
        # where there is no room to map (torch 2.13), so that is tried before.
        mmap.mmap(-1, size).close()
        mapped = torch.from_file(f"/proc/self/fd/{file.fileno()}", shared=False, size=size, dtype=torch.uint8)
        frame = bytes_of(mapped)
        return coding.read(file, *split(frame, nonce), frame.__getitem__)
