"""The one mistake of a drawn program: what one rank does otherwise, at one statement, in one round."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.properties.drawn.programs import Place, Program, Statement

__all__ = ["LOSSES", "OF_KEYS", "OF_MESSAGES", "OTHERS", "How", "Mistake"]


class How(StrEnum):
    """What the rank does."""

    MISSING = "a call left out"
    EXTRA = "a call more"
    SWAP = "two calls swapped"
    OP = "another op"
    REDUCE_OP = "another reduce op"
    ROOT = "another root"
    DTYPE = "another dtype"
    SIZE = "another size"
    GROUP = "another group"
    PEER = "another peer"
    TAG = "another tag"
    UNSENT = "a message left out"
    ARRIVAL = "messages kept in the order in which they come"
    UNSET = "a key that is not set"
    NAME = "another name of a key"
    TURNED = "its neighbour's key in place of its own"
    RAISE = "an exception"
    KILL = "a kill"
    RETURN = "an early return"
    LEAK = "work that is never waited for"
    HAZARD = "a buffer changed in flight"


OTHERS = frozenset({How.OP, How.REDUCE_OP, How.ROOT, How.DTYPE, How.SIZE, How.GROUP, How.PEER, How.TAG})
"""Something else is done in place of the statement."""
OF_MESSAGES = frozenset({How.PEER, How.TAG, How.UNSENT})
"""Made at one end of a message: the other end is as likely to be wrong."""
OF_KEYS = frozenset({How.UNSET, How.NAME, How.TURNED})
LOSSES = frozenset({How.RAISE, How.KILL, How.RETURN})
"""The rank ends before it comes to the statement."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """What `rank` does at `place`, in `round` of the loop there.

    `other` is what it does instead, or on top. `apart` says how that is written: in a branch of its own, or in the
    same line.
    """

    how: How
    rank: int
    place: Place
    round: int = 0
    other: Statement | None = None
    apart: bool = True

    def strikes(self, program: Program, place: Place, number: int, rank: int) -> bool:
        return (rank, place) == (self.rank, self.place) and (program.rounds(place) == 1 or number == self.round)
