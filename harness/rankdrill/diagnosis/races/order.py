"""Whether anything orders two sends to one rank, as far as ledgers tell: if so, who comes first is no chance.

The later of two is free of the earlier if its rank has heard of nobody between the two beginnings: no collective that
somebody entered since, no message that was sent since, no store or file that it looked at and somebody has changed, no
object that it unpickled.
Where a ledger does not reach back so far, or anything else is in doubt, they are taken to be ordered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.ledger import GROUP_OP, LedgerView, Record, State
from rankdrill.step import DEFAULT_GROUP, LEAVES_GROUP, NO_SEQUENCE, RECV, SEND, Kind

__all__ = ["Sent", "all_unordered", "before_its_turn", "destinations", "newest_from_anybody", "unordered"]

MOST_HOPS = 2  # by which one may have heard of a send: who further on might be told of it is taken to be told
MOST_PAIRS = 256  # of sends that are looked at, one after the other as they began
_ALONE = frozenset({Kind.MEMORY, Kind.CLOCK})  # what a rank does for itself
_SEEN_BY_LOOKING = frozenset({Kind.FILE, Kind.STORE, Kind.GROUP})  # and by no other way
_LOOKS = frozenset({"stat", "lstat", "listdir", "scandir", "read", "get", "multi_get", "wait", "check", "num_keys"})
_FROM_ANYBODY = "peer=any"


@dataclass(frozen=True, slots=True)
class Sent:
    """Rank `rank` sent in the step `record`."""

    rank: int
    record: Record


def unordered(
    receiver: int, taken: Taken, views: Mapping[int, LedgerView], *, the_last: bool = False
) -> tuple[Sent, Sent] | None:
    """Two sends to `receiver` that nothing orders, and that it took as `taken` says, whichever of them came first.

    Where only `the_last` that it took counts, one of the two is that.
    """
    received = _received(taken, views[receiver])
    if taken.by_lines:
        return _of_two_lines(receiver, taken, received, views)
    if not received or any(not _is_from_anybody(record) or not _is_there(record, taken) for record in received):
        return None  # another line might have taken one of them
    sends = sorted(_sends_to(receiver, taken, views), key=lambda sent: sent.record.begin_ns)
    here = [record for record in received if record.step.site == taken.site]
    if len(here) < len(received):  # by the same helper, called from elsewhere
        numbers = {_number(record, record.step.message.peer) for record in here if record.step.message is not None}
        sends = [sent for sent in sends if _number(sent.record, sent.rank) in numbers - {None}]
    pairs = [(one, other) for one, other in pairwise(sends) if one.rank != other.rank]
    if the_last:
        last = here[-1].step.message if here else None
        wanted = _number(here[-1], last.peer) if last is not None else None
        pairs = [pair for pair in pairs if wanted in {_number(sent.record, sent.rank) for sent in pair} - {None}]
    run = _Run(views)
    return next((pair for pair in pairs[:MOST_PAIRS] if run.free(*pair)), None)


def _of_two_lines(
    receiver: int, taken: Taken, received: Sequence[Record], views: Mapping[int, LedgerView]
) -> tuple[Sent, Sent] | None:
    """Two sends that nothing orders, each of which another line of one function has taken."""
    if any(not _is_from_anybody(record) or not _is_in_function(record, taken) for record in received):
        return None
    lines = {
        _number(record, record.step.message.peer): record.step.site.line
        for record in received
        if record.step.message is not None and record.step.site is not None
    }
    lines.pop(None, None)
    sends = sorted(_sends_to(receiver, taken, views), key=lambda sent: sent.record.begin_ns)
    run = _Run(views)
    for one, other in [*pairwise(sends)][:MOST_PAIRS]:
        by = {
            lines[number]
            for number in (_number(one.record, one.rank), _number(other.record, other.rank))
            if number in lines
        }
        if one.rank != other.rank and len(by) == 2 and run.free(one, other):
            return one, other
    return None


def before_its_turn(receiver: int, taken: Taken, views: Mapping[int, LedgerView]) -> tuple[Sent, Sent] | None:
    """A send that `receiver` took as `taken` says, and one that it took later, by its sender's name, in any order.

    All that this sender sends is taken by its name: what came first there would be missing later.
    """
    received = _received(taken, views[receiver])
    sends = {_number(sent.record, sent.rank): sent for sent in _sends_to(receiver, taken, views)}
    by_name = [record for record in received if not _is_from_anybody(record)]
    run = _Run(views)
    for place, record in enumerate(received):
        if not (_is_from_anybody(record) and _is_there(record, taken)) or record.step.message is None:
            continue
        first = sends.get(_number(record, record.step.message.peer))
        for later in _next_of_each(received[place:]):
            assert later.step.message is not None
            peer = later.step.message.peer
            second = sends.get(_number(later, peer))
            if first is None or second is None or first.rank == peer or not _all_by_name(peer, sends, by_name):
                continue
            if run.free(*sorted((first, second), key=lambda sent: sent.record.begin_ns)):
                return first, second
    return None


def _next_of_each(received: Sequence[Record]) -> list[Record]:
    """The first of `received` of each sender that is named, if it was not taken from anybody before."""
    found: dict[int, Record] = {}
    for record in received:
        if record.step.message is not None:
            found.setdefault(record.step.message.peer, record)
    return [record for record in found.values() if not _is_from_anybody(record) and record.state is State.ENDED]


def _all_by_name(peer: int, sends: Mapping[tuple[int, int] | None, Sent], by_name: Sequence[Record]) -> bool:
    named = {_number(record, peer) for record in by_name if record.step.message and record.step.message.peer == peer}
    return None not in sends and {number for number, sent in sends.items() if sent.rank == peer} == named


def all_unordered(
    receiver: int,
    taken: Taken,
    pairs: Sequence[tuple[tuple[int, int], tuple[int, int]]],
    views: Mapping[int, LedgerView],
) -> tuple[Sent, Sent] | None:
    """The first of `pairs` of messages, by sender and number, if of all of them the second may have come first.

    When a sender's own message before was taken says nothing here: it would have been at another time, too.
    """
    sends = list(_sends_to(receiver, taken, views))
    aside = {(sent.rank, sent.record.index) for sent in sends}
    run, found = _Run(views, aside), list[tuple[Sent, Sent]]()
    for first, second in pairs:
        both = [(one, other) for one in _those(first, sends) for other in _those(second, sends)]
        if not both or not all(run.may_exchange(*pair) for pair in both):
            return None
        found.append(both[0])
    return found[0] if found else None


def _those(message: tuple[int, int], sends: Sequence[Sent]) -> list[Sent]:
    """The send of `message`, by its sender and number; all of its sender where nobody knows which one it was."""
    rank, number = message
    of_sender = [sent for sent in sends if sent.rank == rank]
    return [sent for sent in of_sender if number == NO_SEQUENCE or _number(sent.record, rank) == message]


def destinations(view: LedgerView, file: str, line: int) -> set[int]:
    """To whom a rank has sent from that line."""
    return {
        record.step.message.peer
        for record in _calls(view)
        if record.step.op == SEND
        and record.step.message is not None
        and record.step.site is not None
        and record.step.site.place == (file, line)
    }


def newest_from_anybody(view: LedgerView, before: int) -> Record | None:
    """The newest receive of a rank before its step number `before`, if it took from anybody and is over."""
    received = [record for record in _calls(view) if record.step.op == RECV and record.index < before]
    newest = received[-1] if received else None
    over = newest is not None and newest.state is State.ENDED
    return newest if newest is not None and over and _is_from_anybody(newest) else None


def _is_from_anybody(record: Record) -> bool:
    return record.step.fingerprint.partition(" ")[2].startswith(_FROM_ANYBODY)


def _is_there(record: Record, taken: Taken) -> bool:
    return record.step.site is not None and record.step.site.place == taken.site.place


def _is_in_function(record: Record, taken: Taken) -> bool:
    site = record.step.site
    return site is not None and (site.file, site.function) == (taken.site.file, taken.site.function)


def _only_looks(record: Record) -> bool:
    step = record.step
    opens_to_read = step.op == "open" and step.fingerprint in ("r", "rb", "rt", "O_RDONLY")
    return step.op in _LOOKS or opens_to_read


def _number(record: Record, sender: int) -> tuple[int, int] | None:
    """Which message of which sender it is an end of; None where nobody can say."""
    message = record.step.message
    return None if message is None or message.number == NO_SEQUENCE else (sender, message.number)


def _received(taken: Taken, view: LedgerView) -> list[Record]:
    """All that the receiver took with this tag, in the order in which it set out to."""
    return [
        record
        for record in _calls(view)
        if record.step.op == RECV
        and record.step.target == taken.group
        and record.step.message is not None
        and record.step.message.tag == taken.tag
    ]


def _sends_to(receiver: int, taken: Taken, views: Mapping[int, LedgerView]) -> Iterator[Sent]:
    for rank, view in views.items():
        for record in _calls(view):
            message = record.step.message
            if message is None or record.step.op != SEND or record.step.target != taken.group:
                continue
            if (message.peer, message.tag) == (receiver, taken.tag) and rank != receiver:
                yield Sent(rank, record)


def _calls(view: LedgerView) -> Iterator[Record]:
    return view.where(lambda kind, state: kind is Kind.COLLECTIVE)


class _Run:
    """What all ranks did, to be asked what may have told one of another."""

    def __init__(self, views: Mapping[int, LedgerView], aside: Collection[tuple[int, int]] = ()) -> None:
        self._views = views
        self._aside = aside  # steps, by rank and index, that tell nobody anything
        self._entered: dict[tuple[str, int], dict[int, int]] = {}  # group and number: when each rank began
        self._ends: dict[tuple[str, str, int, int, int, int], int] = {}  # op, group, from, to, tag, number: likewise
        self._members = {name: ranks for view in views.values() for name, ranks in members_in(view).items()}
        self._members[DEFAULT_GROUP] = tuple(views)
        for rank, view in views.items():
            for record in _calls(view):
                self._read(rank, record)

    def _read(self, rank: int, record: Record) -> None:
        step, message = record.step, record.step.message
        if message is not None:
            if message.number != NO_SEQUENCE and message.peer >= 0:
                ends = (rank, message.peer) if step.op == SEND else (message.peer, rank)
                self._ends[step.op, step.target, *ends, message.tag, message.number] = record.begin_ns
        elif step.sequence != NO_SEQUENCE:
            self._entered.setdefault((step.target, step.sequence), {})[rank] = record.begin_ns

    def may_exchange(self, one: Sent, other: Sent) -> bool:
        """Whether `other` may have come first."""
        return one.record.begin_ns >= other.record.begin_ns or self.free(one, other)

    def free(self, first: Sent, second: Sent) -> bool:
        """Whether nothing can have told the rank of the `second` send that the `first` had begun."""
        since, until = first.record.begin_ns, second.record.begin_ns
        if self._by_memory(since, until, second.rank):
            return False
        return not self._has_heard(second.rank, first, until, MOST_HOPS, second.record.index)

    def _has_heard(self, rank: int, first: Sent, until: int, hops: int, but: int = -1) -> bool:
        """Whether `rank` may know of the `first` send before `until`, by others that may, at most `hops` of them."""
        since, view = first.record.begin_ns, self._views[rank]
        whole = not view.torn and view.records and not (view.dropped and view.records[0].begin_ns > since)
        if rank == first.rank or not hops or not whole:
            return True
        return any(
            self._tells(rank, record, first, until, hops)
            for record in view.where(lambda kind, state: kind not in _ALONE)
            if since < record.end_ns <= until and record.index != but
            if (rank, record.index) not in self._aside
        )

    def _by_memory(self, since: int, until: int, rank: int) -> bool:
        """Whether others may have changed what `rank` sees without a step: a file, meanwhile; at any time something in
        memory that they share.
        """
        shares = any(True for view in self._views.values() for _ in view.where(lambda kind, state: kind is Kind.SHM))
        return shares or self._changed(Kind.FILE, since, until, rank)

    def _changed(self, kind: Kind, since: int, until: int, rank: int) -> bool:
        """Whether another than `rank` did something of that kind meanwhile that others can see."""
        return any(
            since < record.begin_ns < until and not _only_looks(record)
            for other, view in self._views.items()
            if other != rank
            for record in view.where(lambda its, state: its is kind)
        )

    def _tells(self, rank: int, record: Record, first: Sent, until: int, hops: int) -> bool:
        """Whether what `rank` did in `record` may have told it of the `first` send."""
        step, message, since = record.step, record.step.message, first.record.begin_ns
        if step.op in (GROUP_OP, LEAVES_GROUP):
            return False
        if step.kind in _SEEN_BY_LOOKING:
            waited = step.kind is Kind.FILE and record.begin_ns < since  # for a lock, which is let go without a step
            return waited or self._changed(step.kind, since, until, rank)
        if record.state is not State.ENDED or step.kind is not Kind.COLLECTIVE:
            return True
        if message is not None:
            other = RECV if step.op == SEND else SEND  # gloo ends a send when its receive has been posted
            ends = (rank, message.peer) if step.op == SEND else (message.peer, rank)
            came = {message.peer: self._ends.get((other, step.target, *ends, message.tag, message.number))}
        else:
            entered = self._entered.get((step.target, step.sequence), {})
            came = {member: entered.get(member) for member in self._members.get(step.target, ())}
        return not came or any(
            began is None or (began >= since and self._has_heard(other, first, began, hops - 1))
            for other, began in came.items()
            if other != rank
        )
