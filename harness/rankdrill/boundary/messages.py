"""Sends and receives as messages: which one each is, so that its two halves can be told from all others.

Backends match the n-th send from one rank to another with the n-th receive there that has the same tag. So each side
counts for itself, and both come to the same number. A receive that takes from anybody has none until it is over; of
those on the same tag that are issued meanwhile nobody can say which is which, until all that were to take from anybody
are over: then it is known again how many there were from each.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from rankdrill.boundary.numbering import Tally
from rankdrill.step import ANYBODY, NO_SEQUENCE, OUTSIDE, RECV, SEND, Message

__all__ = ["MOST_STREAMS", "Messages"]

MOST_STREAMS = 1 << 14  # pairs and tags counted in one group: a program may take a new tag for every message


class Messages:
    """The messages of rank `place` in the group number `group`, which has these global `ranks`.

    Takes and gives ranks in the group. What is under way is added to `tally` by who sends and taken off by who
    receives.
    """

    def __init__(self, group: int, ranks: Sequence[int], place: int, tally: Tally) -> None:
        self._group = group
        self._ranks = ranks
        self._place = place
        self._tally = tally
        self._numbers: dict[tuple[str, int, int], int] = {}  # op, peer, tag: the next number
        self._from_anybody: Counter[int] = Counter()  # by tag: receives of which the sender is not known yet
        self._unclear: set[int] = set()
        self._lock = threading.Lock()

    def take(self, op: str, peer: int | None, tag: int) -> Message:
        """The next message to, or from, `peer`; None is anybody."""
        with self._lock:
            if op == RECV and self._from_anybody[tag]:
                self._unclear.add(tag)
            if peer is None:
                self._from_anybody[tag] += 1
                return Message(ANYBODY, tag)
            return self._next(op, peer, tag)

    def arrived(self, peer: int, tag: int) -> Message:
        """The message that a receive from anybody turns out to be."""
        with self._lock:
            self._from_anybody[tag] -= 1
            message = self._next(RECV, peer, tag)
            if not self._from_anybody[tag]:
                self._unclear.discard(tag)
            return message

    def give_back(self, op: str, peer: int | None, message: Message) -> None:
        """It was refused when it was issued, and never took place."""
        with self._lock:
            if peer is None:
                self._from_anybody[message.tag] -= 1
                return
            stream = op, peer, message.tag
            newest = self._numbers.get(stream, 0) - 1
            if newest >= 0 and message.number in (newest, NO_SEQUENCE):
                self._numbers[stream] = newest
                self._count(*stream, newest, -1)

    def _next(self, op: str, peer: int, tag: int) -> Message:
        if not 0 <= peer < len(self._ranks):
            return Message(OUTSIDE, tag)
        stream = op, peer, tag
        number = self._numbers.get(stream, 0)
        if not number and len(self._numbers) >= MOST_STREAMS:
            return Message(self._ranks[peer], tag, NO_SEQUENCE)
        self._numbers[stream] = number + 1
        self._count(op, peer, tag, number, 1)
        unclear = op == RECV and tag in self._unclear
        return Message(self._ranks[peer], tag, NO_SEQUENCE if unclear else number)

    def _count(self, op: str, peer: int, tag: int, number: int, sign: int) -> None:
        source, target = (peer, self._place) if op == RECV else (self._place, peer)
        # The hash of a tuple of integers is the same in every process.
        self._tally.add(hash((self._group, source, target, tag, number)) * (sign if op == SEND else -sign))
