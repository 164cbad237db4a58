"""Files that only the ranks of one call can mean: written, checked before they are read, removed.

Every rank makes one file under a name nobody can guess, which the others learn in the agreement, when it is whole and
closed. So it needs no directory of its own, whose removal would take longer than all else with it, and no renaming. A
file counts as a call's own if owner, size and keyed digest are the agreed ones; only then it is loaded. A reader
bears with a file that is not visible yet, as on NFS, until its deadline.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from rankdrill.gathers.agreement.slots import DIGEST_BYTES
from rankdrill.gathers.encoding.coding import Coding
from rankdrill.gathers.encoding.reading import read_exactly
from rankdrill.gathers.encoding.wire import FRAME_NONCE_BYTES, HEAD_BYTES, Encoded, Head, bytes_of
from rankdrill.gathers.host import leftovers
from rankdrill.gathers.host.liveness import Identity
from rankdrill.gathers.host.mounts import is_local
from rankdrill.gathers.host.pages import fresh
from rankdrill.gathers.local.segment import map_private
from rankdrill.gathers.storage.directories import make_private

__all__ = ["Offer", "WrongContentError", "default_directory", "offer", "path_of", "read", "remove", "sweep"]

PREFIX = "rankdrill-"

# Content that is not the agreed one may be an older state that a network file system still shows: so long.
STALE_S = 1.0
_PAUSES_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_REMOVE_ATTEMPTS = 4
_BLOCK_BYTES = 1 << 20
_WORD_BYTES = 8
# What opening a link or a socket says, which no rank writes.
_NO_FILES = (errno.ELOOP, errno.ENXIO)
# Below this, mapping saves nothing.
_MAPPED_BYTES = 1 << 20


class WrongContentError(OSError):
    """A file that is not the one its rank wrote: another size, owner or digest."""


@dataclass(frozen=True)
class Offer:
    """A file that a rank has written: its path, its frame's size and keyed digest, the owner's user id.

    Whom a file belongs to is as this file system shows it: with root squashed, NFS shows another user.
    """

    path: str
    size: int
    digest: bytes
    owner: int = -1


def default_directory() -> str:
    """A private directory of this user below the system's temporary one; made if absent. Raises OSError."""
    path = os.path.join(tempfile.gettempdir(), f"{PREFIX}{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(
            f"{path} is not a directory that only this user can enter: {stat.filemode(found.st_mode)} of user "
            f"{found.st_uid}; have it removed, or name another directory"
        )
    return path


def path_of(base: str, nonce: bytes, identity: Identity) -> str:
    """Where the rank that drew `nonce` puts its file; `identity` lets leftovers be told from files in use."""
    return os.path.join(base, f"{PREFIX}{identity}-{nonce.hex()}")


def offer(base: str, payload: Encoded, nonce: bytes, identity: Identity) -> Offer:
    """Write `payload` below `base`, which is made if absent. Raises OSError, MemoryError; leaves nothing then."""
    path = path_of(base, nonce, identity)
    make_private(base)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            owner, digest = _write(descriptor, payload, nonce)
        finally:
            os.close(descriptor)
    except BaseException:
        with contextlib.suppress(OSError, MemoryError):
            remove(path)
        raise
    return Offer(path, payload.nbytes, digest, owner)


def read(offered: Offer, nonce: bytes, deadline: float, awaited: Callable[[], bool] = lambda: True) -> Opened:
    """The file of the rank that drew `nonce`, waiting for it until `deadline` (of `time.monotonic`) while `awaited`.

    Raises FileNotFoundError if it is not there by then, WrongContentError if it is not what its rank wrote, OSError
    if it cannot be read.
    """
    pauses = iter(_PAUSES_S)
    while True:
        try:
            return _open_once(offered, nonce)
        except FileNotFoundError:
            if time.monotonic() >= deadline:
                raise
        except WrongContentError:
            deadline = min(deadline, time.monotonic() + STALE_S)
            if time.monotonic() >= deadline:
                raise
        except OSError as error:
            if error.errno != errno.ESTALE or time.monotonic() >= deadline:
                raise
        if not awaited():
            raise FileNotFoundError(errno.ENOENT, "taken away", offered.path)
        time.sleep(next(pauses, _PAUSES_S[-1]))


def remove(path: str) -> None:
    """Remove a file; absent is fine. Raises OSError if it stays."""
    for attempt in range(_REMOVE_ATTEMPTS):
        try:
            _remove_once(path)
            return
        except (OSError, MemoryError):
            if attempt == _REMOVE_ATTEMPTS - 1:
                raise
            time.sleep(_PAUSES_S[attempt])


def sweep(base: str) -> None:
    """Remove what crashed processes of this user left in `base`; never raises an OSError."""
    leftovers.sweep(base, PREFIX, stat.S_ISREG, os.unlink)


def _write(descriptor: int, payload: Encoded, nonce: bytes) -> tuple[int, bytes]:
    """Fill a new file and return its owner and digest; it must have the right size before anybody may see it."""
    digest = _Digest(nonce)
    for block in payload.blocks(nonce[:FRAME_NONCE_BYTES], _BLOCK_BYTES):
        digest.add(block)
        rest = block
        while rest.nbytes:
            count = os.write(descriptor, rest)
            if count <= 0:
                raise OSError(errno.EIO, "a write wrote nothing")
            rest = rest[count:]
    status = os.fstat(descriptor)
    if status.st_size != payload.nbytes:
        raise OSError(errno.EIO, f"has {status.st_size} of {payload.nbytes} bytes after writing")
    return status.st_uid, digest.value


class Opened:
    """A file that is certainly the one its rank wrote, whole; `load` gives its object. It closes itself."""

    def __init__(self, file: Any, size: int, nonce: bytes) -> None:
        self._file = file
        self._size = size
        self._nonce = nonce[:FRAME_NONCE_BYTES]

    def load(self, coding: Coding) -> Any:
        """The object in it. Raises FrameError and what loading raises.

        Each buffer lies in memory of its own, or in the file, mapped copy on write, where that is local and they are
        large: then the file system keeps its space until the last of them goes.
        """
        with self._file as file:
            file.seek(0)
            head = Head.parse(read_exactly(file, HEAD_BYTES), self._nonce, self._size)
            stream, places = head.layout(read_exactly(file, head.table_end - HEAD_BYTES))
            large = sum(place.stop - place.start for place in places) >= _MAPPED_BYTES
            if large and is_local(file.fileno()):
                return coding.read(file, stream, places, bytes_of(map_private(file.fileno(), self._size)).__getitem__)
            return coding.read(file, stream, places, self._part)

    def _part(self, place: slice) -> memoryview:
        self._file.seek(place.start)
        return read_exactly(self._file, place.stop - place.start)


def _open_once(offered: Offer, nonce: bytes) -> Opened:
    file = _opened(offered)
    try:
        digest = _Digest(nonce)
        block = fresh(min(_BLOCK_BYTES, offered.size))
        done = 0
        while done < offered.size:
            # As the blocks were written, which a read need not respect.
            count = file.readinto(block[: min(_BLOCK_BYTES - done % _BLOCK_BYTES, offered.size - done)])
            if not count:
                raise WrongContentError(f"{offered.path} ends after {done} of {offered.size} bytes")
            digest.add(block[:count])
            done += count
        if digest.value != offered.digest:
            raise WrongContentError(f"{offered.path} has the right size and other content than its rank wrote")
    except BaseException:
        file.close()
        raise
    return Opened(file, offered.size, nonce)


def _opened(offered: Offer) -> Any:
    """The file there, if it may be the offered one; whatever somebody has put in its place, nobody waits for it."""
    try:
        # Without O_NONBLOCK a pipe would wait for its writer.
        descriptor = os.open(offered.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_FILES:
            raise WrongContentError(f"{offered.path} is not the file that its rank wrote: {error.strerror}") from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != offered.size or status.st_uid != offered.owner:
            raise WrongContentError(f"{offered.path} is not the file that its rank wrote: {_told(status)}, "
                               f"not {offered.size} bytes of user {offered.owner}")  # fmt: skip
        # Not before it is known to be a file: of a directory this raises, and closes nothing.
        return open(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def _told(status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return f"no file (mode {stat.filemode(status.st_mode)}) of user {status.st_uid}"
    return f"{status.st_size} bytes of user {status.st_uid}"


def _remove_once(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if os.path.lexists(path):
        raise OSError(errno.EBUSY, "still there after it was removed", path)


class _Digest:
    """A keyed digest of the sums of a file's blocks, as fast as memory: it tells another or a damaged file from the
    right one. Who may write there at all is a matter of owners and modes.
    """

    def __init__(self, key: bytes) -> None:
        self._hash = hashlib.blake2b(key=key, digest_size=DIGEST_BYTES)
        self._filled = 0
        self._sum = 0
        self._odd = b""

    def add(self, data: bytes | memoryview) -> None:
        """Take in the next bytes, none across the end of a block."""
        self._filled += len(data)
        if self._odd:
            data = self._odd + bytes(data)
        whole = len(data) - len(data) % _WORD_BYTES
        self._sum += int(numpy.frombuffer(data, "<u8", whole // _WORD_BYTES).sum())
        self._odd = bytes(data[whole:])
        if self._filled == _BLOCK_BYTES:
            self._end_block()

    @property
    def value(self) -> bytes:
        """The digest of all that was added; nothing may be added after."""
        if self._filled:
            self._end_block()
        return self._hash.digest()

    def _end_block(self) -> None:
        total = (self._sum + int.from_bytes(self._odd, "little")) % (1 << 64)
        self._hash.update(total.to_bytes(_WORD_BYTES, "little") + self._filled.to_bytes(_WORD_BYTES, "little"))
        self._filled, self._sum, self._odd = 0, 0, b""
