"""The messages of a run, as the ledgers of its ranks tell: which sends met their receives, and which are left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import BATCH, DEFAULT_GROUP, NO_SEQUENCE, RECV, SEND, Kind, Message, Site

__all__ = ["RECEIVING", "SENDING", "SEND_CALLS", "MessageEnd", "Stream", "Traffic"]

SENDING = frozenset({"send", "isend", "send_object_list"})
RECEIVING = frozenset({"recv", "irecv", "recv_object_list"})
SEND_CALLS = SENDING | {BATCH}
"""What a user calls to send a message."""


class Stream(NamedTuple):
    """What goes from one rank to one other, in one group, with one tag."""

    group: str
    source: int
    target: int
    tag: int


@dataclass(frozen=True)
class MessageEnd:
    """One end of message number `number` of `stream`, as rank `rank` wrote it down in `record`.

    `round` counts the collectives that the rank had begun before, as far as its ledger reaches back. Where nobody has
    counted it is 0, and the end is the same.
    """

    rank: int
    stream: Stream
    number: int
    record: Record
    round: int = field(default=0, compare=False)

    @classmethod
    def of(cls, rank: int, record: Record, round: int = 0) -> MessageEnd | None:
        """That of `record`; None for what is no message, or not known to be which."""
        message = record.step.message
        if message is None or message.number == NO_SEQUENCE or message.peer < 0:
            return None
        return cls(rank, _stream(rank, record, message), message.number, record, round)

    @property
    def sends(self) -> bool:
        return self.record.step.op == SEND

    @property
    def peer(self) -> int:
        """The rank at the other end."""
        return self.stream.target if self.sends else self.stream.source

    @property
    def site(self) -> Site | None:
        return self.record.step.site

    @property
    def shown(self) -> str:
        """What is sent, or expected."""
        return self.record.step.fingerprint.partition(" ")[0]


class Traffic:
    """All messages that can be told apart in the ledgers `views`, by rank; what was given up is not among them."""

    def __init__(self, views: Mapping[int, LedgerView]) -> None:
        self._whole = {rank for rank, view in views.items() if not view.dropped and not view.torn}
        self.ends: dict[int, list[MessageEnd]] = {}
        self.rounds: dict[int, int] = dict.fromkeys(views, 0)
        self._counts: dict[tuple[str, Stream], int] = {}
        self._given_up: set[str] = set()  # groups on which a call failed: what was under way there is nobody's mistake
        self._unknown: set[tuple[str, int, int]] = set()  # group, receiver, tag: of some nobody knows whose they took
        for rank, view in views.items():
            self.ends[rank] = list(self._read(rank, view))
        self._halves: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        self._turns = {key: turn for ends in self.ends.values() for key, turn in _turns(ends)}
        self._by_name = {(end.sends, end.stream, end.number): end for ends in self.ends.values() for end in ends}

    def _read(self, rank: int, view: LedgerView) -> Iterator[MessageEnd]:
        for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
            if record.state is State.RAISED:
                self._given_up.add(record.step.target)
                continue
            message = record.step.message
            end = MessageEnd.of(rank, record, self.rounds[rank]) or self._taken_among_others(rank, record)
            if end is not None:
                key = record.step.op, end.stream
                self._counts[key] = max(self._counts.get(key, 0), end.number + 1)
                yield end
            elif message is not None and record.step.op == RECV:
                self._unknown.add((record.step.target, rank, message.tag))
            self.rounds[rank] += record.step.sequence != NO_SEQUENCE

    def _taken_among_others(self, rank: int, record: Record) -> MessageEnd | None:
        """That of one which was received from anybody while others were: which of its sender's it was is the same.

        Only where the ledger tells of all that came before: of another group than the default one some may be of a run
        before.
        """
        message, whole = record.step.message, rank in self._whole and record.step.target == DEFAULT_GROUP
        if message is None or message.peer < 0 or not record.step.is_from_anybody or not whole:
            return None
        stream = _stream(rank, record, message)
        return MessageEnd(rank, stream, self._counts.get((RECV, stream), 0), record, self.rounds[rank])

    @property
    def streams(self) -> frozenset[Stream]:
        return frozenset(stream for _, stream in self._counts)

    def sent(self, stream: Stream) -> int:
        """How many messages the source has begun to send, as far as its ledger reaches back."""
        return self._counts.get((SEND, stream), 0)

    def received(self, stream: Stream) -> int:
        """How many the target has begun to receive."""
        return self._counts.get((RECV, stream), 0)

    def met(self, stream: Stream) -> int:
        """How many have been begun on both sides."""
        return min(self.sent(stream), self.received(stream))

    def other_end(self, end: MessageEnd) -> MessageEnd | None:
        """What `end` met; None where that has not been begun."""
        return self._by_name.get((not end.sends, end.stream, end.number))

    def halves_at(self, site: Site) -> Mapping[int, tuple[int, int]]:
        """How many messages each rank received there, and how many it sent; of those that have been there."""
        if not self._halves:
            for end in (each for ends in self.ends.values() for each in ends if each.site is not None):
                assert end.site is not None
                ranks = self._halves.setdefault(end.site.place, {})
                received, sent = ranks.get(end.rank, (0, 0))
                ranks[end.rank] = (received, sent + 1) if end.sends else (received + 1, sent)
        return self._halves.get(site.place, {})

    def turn(self, end: MessageEnd) -> int:
        """How many messages its rank had sent to that peer before, or received from it, with whatever tag."""
        return self._turns[end.rank, end.record.index]

    def in_round(self, rank: int, number: int, *, sends: bool, stream: Stream, any_tag: bool = False) -> int:
        """How many messages `rank` sent into `stream`, or received from it, after so many collectives; with `any_tag`
        those between its two ranks that have another tag as well.
        """
        made = [end.stream for end in self.ends.get(rank, ()) if end.round == number and end.sends is sends]
        return sum((each._replace(tag=stream.tag) if any_tag else each) == stream for each in made)

    def sites_met(self, end: MessageEnd) -> set[Site | None]:
        """Where the other end of `end` was when messages from its line last met one: that rank's own, or else others'.

        From another line another message may have been meant, of which nothing is known.
        """
        own, others = set[Site | None](), set[Site | None]()
        for ends in self.ends.values():
            for other in ends:
                if other.sends is end.sends or not self._meets_from(end.site, other, end.stream):
                    continue
                if other.stream == end.stream:
                    own = {other.site}
                else:
                    others.add(other.site)
        return own or others

    def sites_meeting(self, end: MessageEnd, rank: int) -> list[Site]:
        """Where `rank` does the other half of what comes from the line of `end`, or waits to do it with that rank."""
        made = (each for each in self.ends.get(rank, ()) if each.sends is not end.sends)
        like = end.stream.group, end.stream.tag
        return [
            each.site
            for each in made
            if each.site is not None
            and (each.stream.group, each.stream.tag) == like
            and (self._meets_from(end.site, each, end.stream) or (each.record.state.open and each.peer == end.rank))
        ]

    def site_in_turn(self, end: MessageEnd) -> Site | None:
        """Where the peer of `end` did the other half for others, of whose messages it did as many from the same lines
        before; None where it did not, or where from several.
        """
        before = [self._by_name.get((not end.sends, end.stream, number)) for number in range(end.number)]
        if None in before:
            return None
        sites = [other.site for other in before if other is not None]
        found = set[Site | None]()
        for stream in self._beside(end):
            row = [self._by_name.get((not end.sends, stream, number)) for number in range(end.number + 1)]
            made = [other.site for other in row if other is not None]
            if made[:-1] == sites and len(made) == len(row):
                found.add(made[-1])
        return found.pop() if len(found) == 1 else None

    def _beside(self, end: MessageEnd) -> Iterator[Stream]:
        """The other streams of that group and tag that the peer of `end` is at the same end of."""
        for stream in self.streams:
            alike = (stream.group, stream.tag) == (end.stream.group, end.stream.tag) and stream != end.stream
            if alike and end.peer == (stream.target if end.sends else stream.source):
                yield stream

    def _meets_from(self, site: Site | None, other: MessageEnd, like: Stream) -> bool:
        """Whether `other`, of a stream of that group and tag, met an end that was at `site`."""
        if (other.stream.group, other.stream.tag) != (like.group, like.tag):
            return False
        met = self._by_name.get((not other.sends, other.stream, other.number))
        return met is not None and met.site == site

    def left_over(self) -> list[MessageEnd]:
        """The ends whose other end has certainly not been begun, in the order in which they began."""
        ends = [end for each in self.ends.values() for end in each if end.stream.group not in self._given_up]
        found = [end for end in ends if self._left_over(end)]
        return sorted(found, key=lambda end: (end.record.begin_ns, end.rank))

    def _left_over(self, end: MessageEnd) -> bool:
        if end.record.state is State.ENDED and not end.sends:
            return False
        other = RECV if end.sends else SEND
        begun = self._counts.get((other, end.stream))
        if begun is None and end.peer not in self._whole:
            return False
        stream = end.stream
        return (begun or 0) <= end.number and (stream.group, stream.target, stream.tag) not in self._unknown


def _turns(ends: Sequence[MessageEnd]) -> Iterator[tuple[tuple[int, int], int]]:
    """Of one rank's ends, each by rank and step, how many of its kind it had begun before."""
    begun: Counter[tuple[str, bool, int]] = Counter()
    for end in ends:
        kind = end.stream.group, end.sends, end.peer
        yield (end.rank, end.record.index), begun[kind]
        begun[kind] += 1


def _stream(rank: int, record: Record, message: Message) -> Stream:
    source, target = (rank, message.peer) if record.step.op == SEND else (message.peer, rank)
    return Stream(record.step.target, source, target, message.tag)
