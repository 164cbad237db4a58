"""Which store a call goes to, and under which key there: stores that lead to one place know a key by one name.

C++ tells neither a prefix nor, of what `clone` gives, where it comes from: both are noted as stores are made. Of a
store that was made elsewhere nothing is known, and its calls are no steps.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from rankdrill.boundary.callsites import owner_of
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.territory import Territory
from rankdrill.step import OWN_STORE, PRIVATE_STORE, StoreKey
from rankdrill.whose import Whose

__all__ = ["STORES", "TCP", "StoreName", "StoreNames", "tcp_name"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

# torch's stubs leave these out.
_FILE: Any = dist.FileStore  # type: ignore[attr-defined]
_HASH: Any = dist.HashStore  # type: ignore[attr-defined]
TCP: Any = dist.TCPStore  # type: ignore[attr-defined]
STORES: tuple[Any, ...] = (_FILE, _HASH, TCP, PrefixStore)
"""The classes in which calls are steps. Not their base: C++ would take a replacement there for an override."""
_HERE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname()})


@dataclass(frozen=True, slots=True)
class StoreName:
    """Of a store: where its keys lie, the prefix they get, and how much of that a reader is shown.

    `told` says which store it is: ``FileStore`` for the world's own, ``TCPStore localhost:29500``. `identity` is equal
    on all ranks whose stores lead to one place.
    """

    told: str
    identity: str
    prefix: str = ""
    shown: str = ""

    def key(self, key: str) -> StoreKey:
        """What `key` is called by everybody."""
        whole = f"{self.identity} {self.prefix}{key}".encode("utf-8", "backslashreplace")
        digest = int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")
        return StoreKey(f"{self.shown}{key}", self.told, digest)


def tcp_name(host: str, port: int) -> StoreName:
    """Of the TCPStore that is served there."""
    place = "localhost" if host in _HERE else host
    return StoreName(f"TCPStore {place}:{port}", f"tcp {place} {port}")


class StoreNames:
    """Of all stores made in this process while its patches are in place; `territory` knows its world's files."""

    def __init__(self, territory: Territory) -> None:
        self._territory = territory
        self._named: weakref.WeakKeyDictionary[Any, StoreName] = weakref.WeakKeyDictionary()
        self._private = itertools.count()

    def of(self, store: Any) -> StoreName | None:
        """The name of `store`; None where it was made unseen."""
        return self._named.get(store)

    def patches(self) -> Iterator[Patch]:
        """What has stores noted as they are made."""
        for cls in STORES:
            yield Patch(cls, "__init__", functools.partial(self._noting, self._namers()[cls]))
            if hasattr(cls, "clone"):
                yield Patch(cls, "clone", self._cloning)

    def _namers(self) -> dict[Any, Callable[..., StoreName | None]]:
        return {_FILE: self._of_file, _HASH: self._of_hash, TCP: self._of_tcp, PrefixStore: self._of_prefix}

    def _noting(self, name: Callable[..., StoreName | None], original: Any) -> Any:
        @functools.wraps(original)
        def made(store: Any, *args: Any, **kwargs: Any) -> None:
            original(store, *args, **kwargs)
            named = name(store, owner_of(sys._getframe(1).f_code), *args, **kwargs)
            if named is not None:
                self._named[store] = named

        return made

    def _cloning(self, original: Any) -> Any:
        @functools.wraps(original)
        def clone(store: Any) -> Any:
            cloned, named = original(store), self.of(store)
            if named is not None:
                self._named[cloned] = named
            return cloned

        return clone

    def _of_file(self, store: Any, by: Whose, *args: Any, **kwargs: Any) -> StoreName:
        path = os.path.realpath(store.path)
        own = self._territory.is_own(path)
        return StoreName(OWN_STORE if own else f"FileStore {path}", f"file {path}")

    def _of_hash(self, store: Any, by: Whose) -> StoreName:
        return StoreName(PRIVATE_STORE, f"of process {os.getpid()} {next(self._private)}")

    def _of_tcp(self, store: Any, by: Whose, *args: Any, **kwargs: Any) -> StoreName:
        return tcp_name(store.host, store.port)

    def _of_prefix(self, store: Any, by: Whose, prefix: str, below: Any = None, **more: Any) -> StoreName | None:
        named = self.of(more.get("store", below))
        if named is None:
            return None
        # What rankdrill and torch put before keys is not what a reader looks for.
        shown = f"{prefix}/" if by in (Whose.USER, Whose.LIBRARY) else ""
        return replace(named, prefix=f"{named.prefix}{prefix}/", shown=f"{named.shown}{shown}")
