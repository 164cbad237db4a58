"""How the ranks of a generation meet: each says who it is and where it can be found, and whom it sees."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rankdrill.gathers.agreement.pinboard import PROCESS, Pinboard
from rankdrill.gathers.agreement.post_mortem import PostMortem, Settlement
from rankdrill.gathers.host.liveness import identify

__all__ = ["AbsentError", "Assembly"]

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.01


class AbsentError(Exception):
    """Not all ranks came to a generation."""


class Assembly:
    """The meeting of one generation, on its `board`."""

    def __init__(self, board: Pinboard) -> None:
        self._board = board

    def come(self, timeout_s: float, address: str = "") -> Settlement | None:
        """Wait for all ranks to come to this generation; how it ended, if it has before.

        Every rank says which process it is, so that the others can tell if it dies, and at which local `address` it
        can be found. Raises AbsentError when a rank has certainly died or `timeout_s` seconds are over.
        """
        board = self._board
        board.pin(f"{PROCESS}/{board.rank}", f"{identify()} {address}")
        ended = self._wait_for_all(PROCESS, timeout_s)
        board.gone(range(board.size))
        return ended or PostMortem(board).settled()

    def addresses(self) -> list[str]:
        """By rank, what `come` was given there; ranks on what is certainly another machine have an empty one."""
        board, machine = self._board, identify().machine
        texts = [board.read(f"{PROCESS}/{rank}").partition(" ")[2] for rank in range(board.size)]
        return [text if board.process_of(rank).machine == machine else "" for rank, text in enumerate(texts)]

    def compare(self, seen: Sequence[int], wish: str, timeout_s: float, hindrance: str = "") -> Settlement | None:
        """Tell all ranks which of them this one sees on its machine, and which line it wishes; as `come`.

        `hindrance` says what keeps this rank from being seen, if it knows.
        """
        self._board.pin(f"sees/{self._board.rank}", f"{wish} {' '.join(map(str, seen))}\n{hindrance}")
        return self._wait_for_all("sees", timeout_s)

    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """After `compare`: the ranks that see one another, machine by machine."""
        everyone = range(self._board.size)
        seen = [set(map(int, self._board.read(f"sees/{rank}").partition("\n")[0].split()[1:])) for rank in everyone]
        hosts: list[tuple[int, ...]] = []
        placed: set[int] = set()
        for rank in everyone:
            if rank not in placed:
                host = (rank, *(other for other in seen[rank] - placed - {rank} if rank in seen[other]))
                hosts.append(tuple(sorted(host)))
                placed.update(host)
        return tuple(hosts)

    def hindrances(self) -> dict[int, str]:
        """After `compare`: what keeps ranks from sharing memory with any other, by rank, of those that know."""
        told = {rank: self._board.read(f"sees/{rank}").partition("\n")[2] for rank in range(self._board.size)}
        return {rank: hindrance for rank, hindrance in told.items() if hindrance}

    def wishes(self) -> set[str]:
        """After `compare`: what the ranks wish."""
        return {self._board.read(f"sees/{rank}").partition(" ")[0] for rank in range(self._board.size)}

    def _wait_for_all(self, what: str, timeout_s: float) -> Settlement | None:
        """Wait until every rank has shown its `what`, or the generation has ended."""
        board = self._board
        deadline = time.monotonic() + timeout_s
        whats = [f"{what}/{rank}" for rank in range(board.size)]
        pause = SHORTEST_PAUSE_S
        while not board.all_there(whats):
            ended = PostMortem(board).settled()
            if ended is not None:
                return ended
            absent = [rank for rank, each in enumerate(whats) if not board.all_there([each])]
            if board.gone(absent):
                raise AbsentError("a process is gone")
            if absent and time.monotonic() >= deadline:
                raise AbsentError(f"ranks {absent} of the channel did not come")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        return None
