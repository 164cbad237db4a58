"""The part of the group's store where the ranks of one generation tell one another who they are and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rankdrill.gathers.host.liveness import Identity, identify, is_gone

__all__ = ["PROCESS", "Pinboard"]

PROCESS = "process"
"""Under this every rank says which process it is, and then whatever else is to be known of it."""


class Pinboard:
    """What one rank sees of it.

    `store` needs `set`, `get`, `check` and `compare_set`; where the last is missing, the ranks may word how a
    generation ended differently. `known` are the processes of the ranks as far as earlier generations told; it is
    added to. Of a rank that is not known `departed` may tell what shows that it has gone.
    """

    def __init__(
        self,
        store: Any,
        prefix: str,
        rank: int,
        size: int,
        known: dict[int, Identity],
        departed: Callable[[int], str | None] = lambda rank: None,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self.rank = rank
        self.size = size
        self._known = known
        self._departed = departed

    def pin(self, what: str, text: str) -> None:
        """Show the others `text` under `what`."""
        self._store.set(self._prefix + what, text)

    def read(self, what: str) -> str:
        """What stands under `what`; empty where nothing does."""
        # `get` alone would wait for the key.
        if not self._store.check([self._prefix + what]):
            return ""
        raw = self._store.get(self._prefix + what)
        return raw.decode() if isinstance(raw, bytes) else str(raw)

    def all_there(self, whats: Sequence[str]) -> bool:
        """Whether something stands under each of `whats`."""
        return bool(self._store.check([self._prefix + what for what in whats]))

    def pin_first(self, what: str, text: str) -> str:
        """Show `text` under `what` unless somebody was there before; what stands there."""
        key = self._prefix + what
        try:
            winner = self._store.compare_set(key, "", text)
        except (NotImplementedError, RuntimeError):
            self._store.set(key, text)
            return text
        return winner.decode() if isinstance(winner, bytes) else str(winner)

    def process_of(self, rank: int) -> Identity:
        """Which process `rank` is, of ranks that have come."""
        return self._known[rank]

    def gone(self, ranks: Iterable[int]) -> dict[int, str]:
        """Which of `ranks` have certainly gone, and what is known of that."""
        me, gone = identify(), {}
        for rank in ranks:
            text = self.read(f"{PROCESS}/{rank}")
            identity = Identity.parse(text.partition(" ")[0]) if text else None
            if identity is not None:
                self._known[rank] = identity
            if rank in self._known:
                if is_gone(self._known[rank], me):
                    gone[rank] = f"its process ended (pid {self._known[rank].pid})"
            elif (shown := self._departed(rank)) is not None:
                gone[rank] = shown
        return gone
