"""A store that asks again and again instead of waiting: what gloo connects over, so that threads may connect at once.

A client of torch's TCPStore is locked for as long as one thread waits in it for a key (torch 2.13). Other threads of
that process then cannot set the keys that other ranks wait for: two ranks whose threads connect two groups, in
different order, would wait for one another until the timeout. A lock of our own would only do the same.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

__all__ = ["PolledStore"]

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.0005, 0.01


class PolledStore(dist.Store):  # type: ignore[name-defined,misc]
    """`store`, seen by a connection that waits. torch calls it from C++, so it must be held while that may happen."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = store

    def set(self, key: str, value: Any) -> None:
        """Set a key."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """The value of a key, once it is there."""
        self.wait([key])
        return bytes(self._store.get(key))

    def check(self, keys: list[str]) -> bool:
        """Whether all `keys` are there."""
        return bool(self._store.check(keys))

    def add(self, key: str, amount: int) -> int:
        """Add to a number."""
        return int(self._store.add(key, amount))

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        """Until all `keys` are there. Raises DistStoreError after `timeout`, by default the store's own."""
        bound = (timeout or self._store.timeout).total_seconds()
        deadline, pause = time.monotonic() + bound, SHORTEST_PAUSE_S
        while not self._store.check(list(keys)):
            if time.monotonic() >= deadline:
                raise dist.DistStoreError(f"after {bound} s still without {', '.join(keys)}")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
