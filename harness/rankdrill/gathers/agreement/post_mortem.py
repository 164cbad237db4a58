"""After the ranks lost one another: what they agree on through the store.

A rank that cannot go on posts what it knows under the generation it was in, waits a moment for the others' posts, and
proposes how to settle it. The first proposal wins (the store's compare-and-set is the referee) and every rank raises
it: those that were there, and a rank that comes late, which finds it. The posts and the settlement of a failed call, a
few hundred bytes, stay in the store, for late ranks to find.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rankdrill.gathers.agreement.callsite import CallPlace
from rankdrill.gathers.agreement.outcomes import Trouble, TroubleKind
from rankdrill.gathers.agreement.pinboard import Pinboard

__all__ = ["Mark", "PostMortem", "Settlement"]

PAUSE_S = 0.01

_Reported = tuple[int, Trouble]


@dataclass(frozen=True)
class Mark:
    """Which call a rank is in, and whether it has seen all others in it."""

    path: str
    number: int
    place: CallPlace
    met: bool


@dataclass(frozen=True)
class Settlement:
    """How a generation ended: in call `number`, with these troubles, while ranks were at `places`.

    `met` says that all ranks had entered that call, so that none of them can have skipped it.
    """

    number: int
    troubles: tuple[_Reported, ...]
    hint: str
    met: bool = False
    places: tuple[CallPlace, ...] = ()


class PostMortem:
    """What becomes of one generation, on its `board`."""

    def __init__(self, board: Pinboard) -> None:
        self._board = board

    def settled(self) -> Settlement | None:
        """How this generation ended, or None."""
        text = self._board.read("settled")
        return _load(text) if text else None

    def settle(self, mark: Mark, troubles: Sequence[_Reported], seen: str, grace_s: float) -> Settlement:
        """Post, hear the others for at most `grace_s` seconds, and return what all ranks will raise."""
        found = self.settled()
        if found is not None:
            return found
        self._board.pin(
            f"post/{self._board.rank}", _dump(Settlement(mark.number, tuple(troubles), seen, mark.met, (mark.place,)))
        )
        posts = self._hear(grace_s)
        return _load(self._board.pin_first("settled", _dump(self._judge(mark, posts, seen))))

    def _hear(self, grace_s: float) -> dict[int, Settlement]:
        deadline = time.monotonic() + grace_s
        posts: dict[int, Settlement] = {}
        while True:
            for rank in range(self._board.size):
                text = "" if rank in posts else self._board.read(f"post/{rank}")
                if text:
                    posts[rank] = _load(text)
            absent = [rank for rank in range(self._board.size) if rank not in posts]
            certain = any(post.troubles for post in posts.values()) or self._board.gone(absent)
            if not absent or certain or time.monotonic() >= deadline:
                return posts
            time.sleep(PAUSE_S)

    def _judge(self, mark: Mark, posts: dict[int, Settlement], seen: str) -> Settlement:
        in_order = [posts[rank] for rank in sorted(posts)]
        number = max([mark.number, *(post.number for post in in_order)])
        met = mark.met or any(post.met for post in in_order)
        places = tuple(place for post in in_order for place in post.places)
        accounts = [post for post in in_order if post.troubles]
        if accounts:
            # Each rank tells the same story from its own side; one whole account reads better than all at once.
            return Settlement(number, accounts[0].troubles, accounts[0].hint, met, places)
        absent = [rank for rank in range(self._board.size) if rank not in posts]
        gone = self._board.gone(absent)
        if gone:
            causes = [(rank, Trouble(TroubleKind.LOST, cause)) for rank, cause in gone.items()]
        else:
            causes = [(rank, Trouble(TroubleKind.LOST, f"did not come to call {number}")) for rank in absent]
        waiting = f"The others waited in {mark.path}, call {mark.number}, at {mark.place.site}: {seen}"
        return Settlement(number, tuple(causes), waiting, met, places)


def _dump(settlement: Settlement) -> str:
    troubles = [[rank, int(t.kind), t.cause, t.culprit] for rank, t in settlement.troubles]
    places = [[place.site, place.depth, place.frames] for place in settlement.places]
    return json.dumps([settlement.number, troubles, settlement.hint, settlement.met, places])


def _load(text: str) -> Settlement:
    number, troubles, hint, met, places = json.loads(text)
    return Settlement(
        number,
        tuple((rank, Trouble(TroubleKind(kind), cause, culprit)) for rank, kind, cause, culprit in troubles),
        hint,
        met,
        tuple(CallPlace(site, depth, tuple((a, b) for a, b in frames)) for site, depth, frames in places),
    )
