"""A gather whose payloads lie in files: offer, agree, read, confirm, remove, confirm.

The agreement carries where each rank's payload lies and how to recognise it. Nothing is removed before all readers have
confirmed, and nothing is returned before everybody has removed its own; on an error everybody removes its own as well.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rankdrill.errors import describe
from rankdrill.gathers.agreement.call import GatherCall, Stored
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.slots import Slot
from rankdrill.gathers.encoding.wire import Encoded
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.storage import files
from rankdrill.gathers.storage.sight import look_across
from rankdrill.gathers.transfer.moves import Loader, load

__all__ = ["FileStorage", "gather_stored"]

# Of the time that the others wait in `confirm`, the part in which a reader waits for a file that is not there.
READING_SHARE = 0.75


class FileStorage:
    """Files below `base`, a directory that all ranks can see; by default one per user and machine."""

    def __init__(self, base: str | None) -> None:
        self._base = base
        self._mine: files.Offer | None = None
        self._removed = False

    def offer(self, payload: Encoded, nonce: bytes) -> Stored:
        """Write this rank's file; first clear away what crashed processes left there."""
        base = self.directory()
        files.sweep(base)
        identity = identify()
        self._mine = files.offer(base, payload, nonce, identity)
        return Stored(self._mine.size, self._mine.digest, identity)

    def read(self, slot: Slot, deadline: float) -> files.Opened:
        """Another rank's file, checked against the size and digest it announced."""
        owner = self._mine.owner if self._mine else -1
        path = files.path_of(self.directory(), slot.nonce, slot.identity)
        return files.read(files.Offer(path, slot.size, slot.digest, owner), slot.nonce, deadline)

    def remove(self) -> None:
        """Remove this rank's file."""
        if self._mine is not None and not self._removed:
            files.remove(self._mine.path)
            self._removed = True

    def directory(self) -> str:
        """Where the files lie. Raises OSError where that is the default one and somebody else can enter it."""
        if self._base is None:
            self._base = files.default_directory()
        return self._base


def gather_stored(
    call: GatherCall, storage: FileStorage, encode_it: Callable[[], Encoded], reader: int | None = None
) -> list[Any]:
    """Every rank's object, by channel rank; with `reader` only on that rank, an empty list elsewhere.

    `call` has been entered.
    """
    try:
        payload = call.attempt(TroubleKind.ENCODE, encode_it)
        stored = call.attempt(TroubleKind.STORAGE, lambda: storage.offer(_given(payload), call.nonce))
        slots = call.agree(stored=stored)
        values = _read_all(call, storage, slots) if reader in (None, call.channel.rank) else []
        call.confirm(all_read=reader is None)
        call.attempt(TroubleKind.STORAGE, storage.remove)
        call.confirm()
        return values
    finally:
        with contextlib.suppress(OSError, MemoryError):
            storage.remove()


def _read_all(call: GatherCall, storage: FileStorage, slots: list[Slot]) -> list[Any]:
    look_across(call, storage.directory(), slots)
    deadline = time.monotonic() + READING_SHARE * call.wait_s
    values: list[Any] = []
    for slot in slots:
        loader = _read_one(call, storage, slot, deadline)
        values.append(load(call, slot, loader) if loader is not None else None)
    return values


def _read_one(call: GatherCall, storage: FileStorage, slot: Slot, deadline: float) -> Loader | None:
    if call.trouble is not None:
        return None
    who = call.channel.labels[slot.rank]
    try:
        return partial(storage.read(slot, deadline).load, call.coding)
    except (FileNotFoundError, files.WrongContentError) as error:
        # Nothing there, or something else: whoever should have written it is to blame.
        call.report(
            TroubleKind.STORAGE, f"payload of rank {who} is not there to read: {describe(error)}", culprit=slot.rank
        )
    except MemoryError as error:
        call.report(TroubleKind.DECODE, f"no memory for the payload of rank {who}: {error}")
    except Exception as error:
        call.report(TroubleKind.STORAGE, f"payload of rank {who} cannot be read: {describe(error)}")
    return None


def _given(payload: Encoded | None) -> Encoded:
    assert payload is not None
    return payload
