"""A gather whose payloads lie in files or segments: offer, agree, read, confirm, remove, confirm.

The agreement carries where each rank's payload lies and how to recognise it. Nothing is removed before all readers have
confirmed, and nothing is returned before everybody has removed its own; on an error everybody removes its own as well.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

from rankdrill.gathers import files, shm
from rankdrill.gathers.call import Call, Stored
from rankdrill.gathers.liveness import identify
from rankdrill.gathers.outcomes import Kind, describe
from rankdrill.gathers.slots import Slot
from rankdrill.gathers.transfer import Loader, load, of_frame
from rankdrill.gathers.wire import Payload

__all__ = ["FileStorage", "SegmentStorage", "Storage", "gather_stored"]

# Of the time that the others wait in `confirm`, the part in which a reader waits for a file that is not there.
READING_SHARE = 0.75


class Storage(Protocol):
    """Where ranks lay down payloads for one another."""

    def offer(self, payload: Payload, nonce: bytes) -> Stored:
        """Lay down this rank's payload. Raises OSError, leaving nothing."""

    def read(self, slot: Slot, deadline: float) -> Loader:
        """What loads the payload that the rank of `slot` laid down. Raises OSError."""

    def remove(self) -> None:
        """Take away what `offer` laid down, if anything. Raises OSError if it stays."""


class FileStorage:
    """Files below `base`, a directory that all ranks can see; by default one per user and machine."""

    def __init__(self, base: str | None) -> None:
        self._base = base
        self._mine: files.Offer | None = None
        self._removed = False

    def offer(self, payload: Payload, nonce: bytes) -> Stored:
        """Write this rank's file; first clear away what crashed processes left there."""
        base = self._directory()
        files.sweep(base)
        identity = identify()
        self._mine = files.offer(base, payload, nonce, identity)
        return Stored(self._mine.size, self._mine.digest, identity)

    def read(self, slot: Slot, deadline: float) -> Loader:
        """Another rank's file, checked against the size and digest it announced."""
        owner = self._mine.owner if self._mine else -1
        directory = files.private_directory(self._directory(), slot.nonce, slot.identity)
        return files.read(files.Offer(directory, slot.size, slot.digest, owner), slot.nonce, deadline).load

    def remove(self) -> None:
        """Remove this rank's file and directory."""
        if self._mine is not None and not self._removed:
            files.remove(self._mine.directory)
            self._removed = True

    def _directory(self) -> str:
        if self._base is None:
            self._base = files.default_directory()
        return self._base


class SegmentStorage:
    """Shared memory of this machine. What is read stays valid after `remove`: only the name goes."""

    def __init__(self) -> None:
        self._path: str | None = None

    def offer(self, payload: Payload, nonce: bytes) -> Stored:
        """Make this rank's segment; first clear away what crashed processes left."""
        shm.sweep()
        identity = identify()
        path = shm.segment_path(nonce, identity)
        shm.create(payload, nonce, identity)
        self._path = path
        return Stored(payload.nbytes, b"", identity)

    def read(self, slot: Slot, deadline: float) -> Loader:
        """Another rank's segment, mapped: nothing is copied."""
        return of_frame(slot, shm.open_segment(shm.segment_path(slot.nonce, slot.identity), slot.size, deadline))

    def remove(self) -> None:
        """Unlink this rank's segment."""
        if self._path is not None:
            shm.remove(self._path)
            self._path = None


def gather_stored(
    call: Call, storage: Storage, encode_it: Callable[[], Payload], reader: int | None = None
) -> list[Any]:
    """Every rank's object, by channel rank; with `reader` only on that rank, an empty list elsewhere.

    `call` has been entered.
    """
    try:
        payload = call.attempt(Kind.ENCODE, encode_it)
        stored = call.attempt(Kind.STORAGE, lambda: storage.offer(_given(payload), call.nonce))
        slots = call.agree(stored=stored)
        values = _read_all(call, storage, slots) if reader in (None, call.channel.rank) else []
        call.confirm(all_read=reader is None)
        call.attempt(Kind.STORAGE, storage.remove)
        call.confirm()
        return values
    finally:
        with contextlib.suppress(OSError, MemoryError):
            storage.remove()


def _read_all(call: Call, storage: Storage, slots: list[Slot]) -> list[Any]:
    deadline = time.monotonic() + READING_SHARE * call.wait_s
    values: list[Any] = []
    for slot in slots:
        loader = _read_one(call, storage, slot, deadline)
        values.append(load(call, slot, loader) if loader is not None else None)
    return values


def _read_one(call: Call, storage: Storage, slot: Slot, deadline: float) -> Loader | None:
    if call.trouble is not None:
        return None
    who = call.channel.labels[slot.rank]
    try:
        return storage.read(slot, deadline)
    except (FileNotFoundError, files.WrongContentError) as error:
        # Nothing there, or something else: whoever should have written it is to blame.
        call.report(Kind.STORAGE, f"payload of rank {who} is not there to read: {describe(error)}", culprit=slot.rank)
    except Exception as error:
        call.report(Kind.STORAGE, f"payload of rank {who} cannot be read: {describe(error)}")
    return None


def _given(payload: Payload | None) -> Payload:
    assert payload is not None
    return payload
