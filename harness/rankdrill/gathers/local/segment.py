"""One segment: a payload in anonymous shared memory, made by one process and mapped by others.

A segment is a sealed memfd: nobody can change or shorten it, so no reader is ever caught by a page that is gone; it is
not bounded by the size of /dev/shm; and the kernel frees it with its last user, however that ends. Other processes open
it through /proc, by the process and the descriptor that they were told.

What is read is mapped privately, copy on write: tensors and arrays are independent of everybody's at no cost until they
are written to. Large `bytes` are read straight into their own memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rankdrill.gathers.encoding.coding import Coding
from rankdrill.gathers.encoding.wire import Encoded, FrameError, bytes_of, split

__all__ = [
    "create",
    "create_page",
    "load",
    "map_page",
    "map_private",
    "map_shared",
    "open_segment",
    "proof_of",
    "read_table",
    "reserve",
    "table_of",
]

_FIXED_SIZE = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
# Nobody may write any more, except through the mapping that a receiver made before (Linux 5.1; not yet in `fcntl`).
_F_SEAL_FUTURE_WRITE = 0x0010
_SEALS = (_FIXED_SIZE | fcntl.F_SEAL_WRITE, _FIXED_SIZE | _F_SEAL_FUTURE_WRITE)
_DESCRIPTOR = struct.Struct("<I")


def create(payload: Encoded, nonce: bytes) -> int:
    """A sealed segment with the frame of `payload`; returns its descriptor. Raises OSError, leaving nothing."""
    return _written(payload.pieces(nonce))


def reserve(size: int) -> int:
    """A segment of `size` bytes that only `map_shared` can fill. Raises OSError, leaving nothing."""
    with _new() as descriptor:
        os.ftruncate(descriptor, size)
    return descriptor


def map_shared(descriptor: int, size: int) -> torch.Tensor:
    """The memory of a segment of ours from `reserve`, to be written to; sealed for everybody else. Raises OSError."""
    block = _mapped(descriptor, size, shared=True)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS[1])
    return block


def create_page(size: int) -> int:
    """`size` bytes of no content, and of a size that stays, for all who are given the descriptor. Raises OSError."""
    with _new() as descriptor:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _FIXED_SIZE)
    return descriptor


def map_page(descriptor: int, size: int) -> torch.Tensor:
    """The memory of such a page, which everybody may write to. Raises OSError."""
    return _mapped(descriptor, size, shared=True)


def map_private(descriptor: int, size: int) -> torch.Tensor:
    """The content of a segment or file, copy on write. Raises OSError."""
    return _mapped(descriptor, size, shared=False)


def table_of(descriptors: Sequence[int]) -> int:
    """A segment that lists other segments of this process. Raises OSError, leaving nothing."""
    return _written([_DESCRIPTOR.pack(descriptor) for descriptor in descriptors])


def proof_of(text: bytes) -> int:
    """A segment that says `text`, for others to see that they can see it. Raises OSError, leaving nothing."""
    return _written([text])


def read_table(pid: int, descriptor: int, length: int) -> list[int]:
    """The descriptors that process `pid` listed. Raises OSError, FrameError."""
    with open_segment(pid, descriptor, length * _DESCRIPTOR.size) as file:
        return [number for (number,) in _DESCRIPTOR.iter_unpack(file.read())]


@contextmanager
def open_segment(pid: int, descriptor: int, size: int) -> Iterator[Any]:
    """The segment that process `pid` has under `descriptor`, as a file. Raises OSError, FrameError if it is none."""
    path = f"/proc/{pid}/fd/{descriptor}"
    with open(path, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size != size or found.st_uid != os.geteuid():
            raise FrameError(f"{path} is not the segment that its rank made: {found.st_size} bytes of {size}")
        if fcntl.fcntl(file.fileno(), fcntl.F_GET_SEALS) not in _SEALS:
            raise FrameError(f"{path} is not sealed")
        yield file


def load(pid: int, descriptor: int, size: int, nonce: bytes, coding: Coding) -> Any:
    """The object whose frame is in that segment. Raises OSError, FrameError, and what loading raises."""
    with open_segment(pid, descriptor, size) as file:
        frame = bytes_of(map_private(file.fileno(), size))
        return coding.read(file, *split(frame, nonce), frame.__getitem__)


def _written(pieces: Any) -> int:
    with _new() as descriptor:
        for piece in pieces:
            rest = memoryview(piece)
            while rest.nbytes:
                rest = rest[os.write(descriptor, rest) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS[0])
    return descriptor


@contextmanager
def _new() -> Iterator[int]:
    """A new memfd, closed again if anything fails."""
    descriptor = os.memfd_create("rankdrill", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        yield descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise


def _mapped(descriptor: int, size: int, *, shared: bool) -> torch.Tensor:
    # Not `mmap.mmap`, which keeps a descriptor for as long as the memory lives. But `from_file` leaves one open where
    # there is no room to map (torch 2.13), so that is tried before.
    mmap.mmap(-1, size).close()
    return torch.from_file(f"/proc/self/fd/{descriptor}", shared=shared, size=size, dtype=torch.uint8, device="cpu")
