"""After the ranks lost one another: what they agree on through the store.

A rank that cannot go on posts what it knows under the generation it was in, waits a moment for the others' posts, and
proposes a verdict. The first proposal wins (the store's compare-and-set is the referee) and every rank raises it: those
that were there, and a rank that comes late, which finds it. The posts and the verdict of a failed call, a few hundred
bytes, stay in the store, for late ranks to find.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rankdrill.gathers.agreement.callsite import Place
from rankdrill.gathers.agreement.outcomes import Kind, Trouble
from rankdrill.gathers.host.liveness import Identity, identify, is_gone

__all__ = ["AbsentError", "Board", "Mark", "Verdict"]

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.01

_Reported = tuple[int, Trouble]


class AbsentError(Exception):
    """Not all ranks came to a generation."""


@dataclass(frozen=True)
class Mark:
    """Which call a rank is in, and whether it has seen all others in it."""

    path: str
    number: int
    place: Place
    met: bool


@dataclass(frozen=True)
class Verdict:
    """How a generation ended: in call `number`, with these troubles, while ranks were at `places`.

    `met` says that all ranks had entered that call, so that none of them can have skipped it.
    """

    number: int
    troubles: tuple[_Reported, ...]
    hint: str
    met: bool = False
    places: tuple[Place, ...] = ()


class Board:
    """The part of the store where one generation's ranks post.

    `store` needs `set`, `get`, `check` and `compare_set`; where the last is missing, the ranks may word the verdict
    differently. `known` are the processes of the ranks as far as earlier generations told; it is added to.
    """

    def __init__(self, store: Any, prefix: str, rank: int, size: int, known: dict[int, Identity]) -> None:
        self._store = store
        self._prefix = prefix
        self._rank = rank
        self._size = size
        self._known = known

    def assemble(self, timeout_s: float, address: str = "") -> Verdict | None:
        """Wait for all ranks to come to this generation; the verdict, if it has ended before.

        Every rank says which process it is, so that the others can tell if it dies, and at which local `address` it
        can be found. Raises AbsentError when a rank has certainly died or `timeout_s` seconds are over.
        """
        self._set(f"process/{self._rank}", f"{identify()} {address}")
        ended = self._wait_for_all("process", timeout_s)
        self._gone(range(self._size))
        return ended or self.verdict()

    def addresses(self) -> list[str]:
        """By rank, what `assemble` was given there; ranks on what is certainly another machine have an empty one."""
        machine = identify().machine
        texts = [self._get(f"process/{rank}").partition(" ")[2] for rank in range(self._size)]
        return [text if self._known[rank].machine == machine else "" for rank, text in enumerate(texts)]

    def compare(self, seen: Sequence[int], wish: str, timeout_s: float) -> Verdict | None:
        """Tell all ranks which of them this one sees on its machine, and which line it wishes; as `assemble`."""
        self._set(f"sees/{self._rank}", f"{wish} {' '.join(map(str, seen))}")
        return self._wait_for_all("sees", timeout_s)

    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """After `compare`: the ranks that see one another, machine by machine."""
        seen = [set(map(int, self._get(f"sees/{rank}").split()[1:])) for rank in range(self._size)]
        hosts: list[tuple[int, ...]] = []
        placed: set[int] = set()
        for rank in range(self._size):
            if rank not in placed:
                host = (rank, *(other for other in seen[rank] - placed - {rank} if rank in seen[other]))
                hosts.append(tuple(sorted(host)))
                placed.update(host)
        return tuple(hosts)

    def wishes(self) -> set[str]:
        """After `compare`: what the ranks wish."""
        return {self._get(f"sees/{rank}").partition(" ")[0] for rank in range(self._size)}

    def _wait_for_all(self, what: str, timeout_s: float) -> Verdict | None:
        """Wait until every rank has set its `what`, or the generation has ended."""
        deadline = time.monotonic() + timeout_s
        keys = [f"{self._prefix}{what}/{rank}" for rank in range(self._size)]
        pause = SHORTEST_PAUSE_S
        while not self._store.check(keys):
            ended = self.verdict()
            if ended is not None:
                return ended
            absent = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
            if self._gone(absent):
                raise AbsentError("a process is gone")
            if absent and time.monotonic() >= deadline:
                raise AbsentError(f"ranks {absent} of the channel did not come")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        return None

    def verdict(self) -> Verdict | None:
        """How this generation ended, or None."""
        text = self._get("verdict")
        return _load(text) if text else None

    def settle(self, mark: Mark, troubles: Sequence[_Reported], seen: str, grace_s: float) -> Verdict:
        """Post, hear the others for at most `grace_s` seconds, and return what all ranks will raise."""
        found = self.verdict()
        if found is not None:
            return found
        self._set(f"post/{self._rank}", _dump(Verdict(mark.number, tuple(troubles), seen, mark.met, (mark.place,))))
        posts = self._hear(grace_s)
        return self._propose(self._judge(mark, posts, seen))

    def _hear(self, grace_s: float) -> dict[int, Verdict]:
        deadline = time.monotonic() + grace_s
        posts: dict[int, Verdict] = {}
        while True:
            for rank in range(self._size):
                text = "" if rank in posts else self._get(f"post/{rank}")
                if text:
                    posts[rank] = _load(text)
            absent = [rank for rank in range(self._size) if rank not in posts]
            certain = any(post.troubles for post in posts.values()) or self._gone(absent)
            if not absent or certain or time.monotonic() >= deadline:
                return posts
            time.sleep(LONGEST_PAUSE_S)

    def _judge(self, mark: Mark, posts: dict[int, Verdict], seen: str) -> Verdict:
        in_order = [posts[rank] for rank in sorted(posts)]
        number = max([mark.number, *(post.number for post in in_order)])
        met = mark.met or any(post.met for post in in_order)
        places = tuple(place for post in in_order for place in post.places)
        accounts = [post for post in in_order if post.troubles]
        if accounts:
            # Each rank tells the same story from its own side; one whole account reads better than all at once.
            return Verdict(number, accounts[0].troubles, accounts[0].hint, met, places)
        absent = [rank for rank in range(self._size) if rank not in posts]
        gone = self._gone(absent)
        if gone:
            causes = [(rank, Trouble(Kind.LOST, f"its process ended (pid {pid})")) for rank, pid in gone.items()]
        else:
            causes = [(rank, Trouble(Kind.LOST, f"did not come to call {number}")) for rank in absent]
        waiting = f"The others waited in {mark.path}, call {mark.number}, at {mark.place.site}: {seen}"
        return Verdict(number, tuple(causes), waiting, met, places)

    def _gone(self, ranks: Iterable[int]) -> dict[int, int]:
        """Which of `ranks` have certainly ended, and their process ids."""
        me, gone = identify(), {}
        for rank in ranks:
            text = self._get(f"process/{rank}")
            identity = Identity.parse(text.partition(" ")[0]) if text else None
            if identity is not None:
                self._known[rank] = identity
            if rank in self._known and is_gone(self._known[rank], me):
                gone[rank] = self._known[rank].pid
        return gone

    def _propose(self, proposal: Verdict) -> Verdict:
        key, text = self._prefix + "verdict", _dump(proposal)
        try:
            winner = self._store.compare_set(key, "", text)
        except (NotImplementedError, RuntimeError):
            self._store.set(key, text)
            return proposal
        return _load(winner.decode() if isinstance(winner, bytes) else str(winner))

    def _set(self, key: str, text: str) -> None:
        self._store.set(self._prefix + key, text)

    def _get(self, key: str) -> str:
        # `get` alone would wait for the key.
        if not self._store.check([self._prefix + key]):
            return ""
        raw = self._store.get(self._prefix + key)
        return raw.decode() if isinstance(raw, bytes) else str(raw)


def _dump(verdict: Verdict) -> str:
    troubles = [[rank, int(t.kind), t.cause, t.culprit] for rank, t in verdict.troubles]
    places = [[place.site, place.depth, place.frames] for place in verdict.places]
    return json.dumps([verdict.number, troubles, verdict.hint, verdict.met, places])


def _load(text: str) -> Verdict:
    number, troubles, hint, met, places = json.loads(text)
    return Verdict(
        number,
        tuple((rank, Trouble(Kind(kind), cause, culprit)) for rank, kind, cause, culprit in troubles),
        hint,
        met,
        tuple(Place(site, depth, tuple((a, b) for a, b in frames)) for site, depth, frames in places),
    )
