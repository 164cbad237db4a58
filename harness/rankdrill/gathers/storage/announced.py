"""Files that ranks tell one another of through the job's store: which file each rank left last, in which directory.

Nobody meets for that. A file is told of when it is whole, by all that tells it from any other, so whoever asks gets the
file that the rank wrote last in this run or learns that there is none: files of other runs are never asked for.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from rankdrill.gathers.host.liveness import Identity, identify, is_gone
from rankdrill.gathers.storage import files

__all__ = ["Announced", "Announcements", "remove"]


@dataclass(frozen=True)
class Announced:
    """A file that the process `identity` has written whole, under the `nonce` it drew."""

    offer: files.Offer
    nonce: bytes
    identity: Identity


class _Alone:
    """The store of a process that is no rank of any job."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def set(self, key: str, text: str) -> None:
        self._texts[key] = text

    def get(self, key: str) -> str:
        return self._texts[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self._texts for key in keys)


_alone = _Alone()
# What this process has left, by where that was told and as which rank. It is there for others, whatever becomes of the
# object that left it.
_left: dict[tuple[str, int], Announced] = {}


class Announcements:
    """What the ranks of a job have told of the directory `base`; `store` is the job's, None of a process that has none.

    With `among`, a name that some of the ranks have for themselves, it is only what these have told one another. What
    the store raises is RuntimeError.
    """

    def __init__(self, store: Any, base: str, among: str = "") -> None:
        self._store = _alone if store is None else store
        place = hashlib.blake2b(os.fsencode(base), digest_size=16).hexdigest()
        self._prefix = f"rankdrill-files/{place}/{among}/"

    def leave(self, rank: int, file: Announced) -> None:
        """Have `file` be what `rank`, this process, has left, instead of what it left before, which is removed."""
        before = _left.get((self._prefix, rank))
        self._store.set(self._prefix + str(rank), _dump(file))
        _left[self._prefix, rank] = file
        if before is not None:
            remove(before)

    def withdraw(self, rank: int) -> None:
        """Remove what `rank`, this process, has left, if it has."""
        file = _left.pop((self._prefix, rank), None)
        if file is not None:
            with contextlib.suppress(RuntimeError):  # the store is gone, and with it what was told
                self._store.set(self._prefix + str(rank), "")
            remove(file)

    def ask(self, rank: int) -> Announced | None:
        """What `rank` has left, unless its process has certainly ended without taking it back."""
        key = self._prefix + str(rank)
        if not self._store.check([key]):
            return None
        file = _load(self._store.get(key))
        return None if file is None or is_gone(file.identity, identify()) else file

    def open(self, rank: int, until: float) -> files.Opened | None:
        """The file that `rank` has left, waiting for it to be seen here; None if it has left none.

        Raises as `files.read`.
        """
        while (file := self.ask(rank)) is not None:
            try:
                return files.read(file.offer, file.nonce, until, partial(self._is_left, rank, file))
            except OSError:
                if self._is_left(rank, file) or time.monotonic() >= until:
                    raise
        return None

    def _is_left(self, rank: int, file: Announced) -> bool:
        """Whether it still is what `rank` has left, and was not replaced meanwhile."""
        return self.ask(rank) == file


def remove(file: Announced) -> None:
    """Remove it as well as can be; what stays is for whoever sweeps there."""
    with contextlib.suppress(OSError, MemoryError):
        files.remove(file.offer.path)


@atexit.register
def _remove_all() -> None:
    for file in _left.values():
        if file.identity.pid == os.getpid():  # not those of the process that this one was forked from
            remove(file)


def _dump(file: Announced) -> str:
    offer = file.offer
    return json.dumps([offer.path, offer.size, offer.digest.hex(), offer.owner, file.nonce.hex(), str(file.identity)])


def _load(raw: bytes | str) -> Announced | None:
    if not raw:
        return None
    path, size, digest, owner, nonce, told = json.loads(raw)
    identity = Identity.parse(told)
    assert identity is not None
    return Announced(files.Offer(path, size, bytes.fromhex(digest), owner), bytes.fromhex(nonce), identity)
