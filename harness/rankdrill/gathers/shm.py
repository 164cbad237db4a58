"""Shared-memory segments as plain files in /dev/shm, one per rank, whose names live only for the length of one call.

`multiprocessing.shared_memory` is not used: on Python 3.11 its resource tracker unlinks segments of other processes.
The space is reserved before it is mapped, since touching a mapped page of a full tmpfs ends the process (SIGBUS).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time

from rankdrill.gathers.files import PREFIX
from rankdrill.gathers.liveness import Identity, has_gone, identify
from rankdrill.gathers.wire import NONCE_BYTES, Payload

__all__ = ["DIRECTORY", "create", "open_segment", "remove", "segment_path", "sweep"]

DIRECTORY = "/dev/shm"
LEFTOVER_S = 24 * 3600.0
_PAUSE_S = 0.01
_REMOVE_ATTEMPTS = 4


def segment_path(nonce: bytes, identity: Identity) -> str:
    """Where the rank that drew `nonce` has its segment."""
    return os.path.join(DIRECTORY, f"{PREFIX}{identity}-{nonce.hex()}")


def create(payload: Payload, nonce: bytes, identity: Identity) -> None:
    """Put `payload` into a new segment. Raises OSError (a full /dev/shm is ENOSPC); leaves nothing then."""
    path = segment_path(nonce, identity)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, payload.nbytes)
        with mmap.mmap(descriptor, payload.nbytes) as memory, memoryview(memory) as view:
            payload.write_into(view, nonce[:NONCE_BYTES])
    except BaseException:
        with contextlib.suppress(OSError, MemoryError):
            remove(path)
        raise
    finally:
        os.close(descriptor)


def open_segment(path: str, size: int, deadline: float) -> memoryview:
    """A segment's memory, waiting for its name until `deadline`; freed when nothing refers to it any more.

    Raises FileNotFoundError if it is not there by then, OSError if it is not a segment of `size` bytes of this user.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            break
        except FileNotFoundError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size or status.st_uid != os.geteuid():
            raise OSError(f"{path} is not the segment that its rank made: {status.st_size} bytes of {size}")
        return memoryview(mmap.mmap(descriptor, size))
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a segment's name; absent is fine. Raises OSError if it stays."""
    for attempt in range(_REMOVE_ATTEMPTS):
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            if not os.path.lexists(path):
                return
            raise OSError(f"{path} is still there after it was removed")
        except (OSError, MemoryError):
            if attempt == _REMOVE_ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE_S)


def sweep() -> None:
    """Remove the segments and endpoints that crashed processes of this user left; never raises an OSError."""
    with contextlib.suppress(OSError), os.scandir(DIRECTORY) as entries:
        me = identify()
        for entry in entries:
            with contextlib.suppress(OSError, MemoryError):
                if entry.name.startswith(PREFIX) and _is_leftover(entry, me):
                    os.unlink(entry.path)


def _is_leftover(entry: os.DirEntry[str], me: Identity) -> bool:
    status = entry.stat(follow_symlinks=False)
    identity = Identity.parse(entry.name.removeprefix(PREFIX).rpartition("-")[0])
    ours = stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)
    if identity is None or not ours or status.st_uid != os.geteuid():
        return False
    if identity.machine == me.machine and me.machine:
        return has_gone(identity, me)
    return time.time() - status.st_mtime > LEFTOVER_S
