"""Sends to one rank that came in one order and might have come in another: which, of those that it took somehow.

Of two sends that nothing orders (`heard.py`) it is chance which comes first. Where anything is in doubt, they are taken
to be ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise

from rankdrill.diagnosis.races.heard import Run, Sent, calls_in
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import NO_SEQUENCE, RECV, SEND, Site

__all__ = [
    "Sent",
    "all_unordered",
    "before_its_turn",
    "destinations",
    "named_otherwise",
    "newest_from_anybody",
    "of_two_rounds",
    "taken_already",
    "taken_from_anybody",
    "unordered",
]

MOST_PAIRS = 256  # of sends that are looked at, one after the other as they began
FEWEST_NAMED = 2  # receives of a line that name one sender, so that it is meant where none is named, too


def unordered(
    receiver: int,
    taken: Taken,
    views: Mapping[int, LedgerView],
    *,
    the_last: bool = False,
    if_buffered: bool = False,
) -> tuple[Sent, Sent] | None:
    """Two sends to `receiver` that nothing orders, and that it took as `taken` says, whichever of them came first.

    Where only `the_last` that it took counts, one of the two is that. If that is asked `if_buffered`, when a sender's
    own message before was taken says nothing: gloo's send ends only then, and MPI's may end before.
    """
    received = _received(taken, views[receiver])
    if taken.by_lines:
        return _of_two_lines(receiver, taken, received, views)
    if not received or any(not record.step.is_from_anybody or not _is_there(record, taken) for record in received):
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
    aside = {(sent.rank, sent.record.index) for sent in _sent_to(receiver, _on_group(taken.group), views)}
    run = Run(views, aside if if_buffered else ())
    return next((pair for pair in pairs[:MOST_PAIRS] if run.free(*pair)), None)


def _of_two_lines(
    receiver: int, taken: Taken, received: Sequence[Record], views: Mapping[int, LedgerView]
) -> tuple[Sent, Sent] | None:
    """Two sends that nothing orders, each of which another line of one function has taken."""
    if any(not record.step.is_from_anybody or not _is_in_function(record, taken) for record in received):
        return None
    lines = {
        _number(record, record.step.message.peer): record.step.site.line
        for record in received
        if record.step.message is not None and record.step.site is not None
    }
    lines.pop(None, None)
    sends = sorted(_sends_to(receiver, taken, views), key=lambda sent: sent.record.begin_ns)
    run = Run(views)
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
    by_name = [record for record in received if not record.step.is_from_anybody]
    if not by_name:
        return None
    sends = {_number(sent.record, sent.rank): sent for sent in _sends_to(receiver, taken, views)}
    run = Run(views)
    for place, record in enumerate(received):
        if not (record.step.is_from_anybody and _is_there(record, taken)) or record.step.message is None:
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


def named_otherwise(receiver: int, taken: Taken, views: Mapping[int, LedgerView]) -> tuple[int, Sent, Sent] | None:
    """Whom else `receiver` names where it took from anybody, and two sends of which either may have been taken there.

    Who takes from anybody first may go on with the one that came.
    """
    received = _received(taken, views[receiver])
    here = [record for record in received if record.step.site == taken.site]
    peers = [record.step.message.peer for record in here if record.step.message and not record.step.is_from_anybody]
    if len(peers) < FEWEST_NAMED or len({*peers}) != 1:
        return None
    sends = {_number(sent.record, sent.rank): sent for sent in _sends_to(receiver, taken, views)}
    run = Run(views)
    for record in here:
        message = record.step.message
        if not record.step.is_from_anybody or message is None or (record is here[0] and message.peer == peers[0]):
            continue
        before = [each for each in received if each.index < record.index]
        gone = {_number(each, each.step.message.peer) for each in before if each.step.message}
        came = sends.get(_number(record, message.peer))
        for number, sent in sends.items():
            if came is None or sent.rank == came.rank or number in gone:
                continue
            first, second = sorted((came, sent), key=lambda one: one.record.begin_ns)
            if run.free(first, second):
                return peers[0], first, second
    return None


def of_two_rounds(receiver: int, taken: Taken, views: Mapping[int, LedgerView]) -> tuple[Sent, Sent] | None:
    """A sender's message of one round and another one's of the next, which may have come before it, if all that
    `receiver` took are so many of each sender.
    """
    received = _received(taken, views[receiver])
    if any(not record.step.is_from_anybody or record.step.site != taken.site for record in received):
        return None
    of_sender: dict[int, list[Sent]] = {}
    for sent in _sends_to(receiver, taken, views):
        of_sender.setdefault(sent.rank, []).append(sent)
    rounds = {len(sends) for sends in of_sender.values()}
    if len(of_sender) < 2 or len(rounds) != 1 or sum(map(len, of_sender.values())) != len(received):
        return None
    run = Run(views)
    pairs = (
        (mine[at], theirs[at + 1])
        for at in range(rounds.pop() - 1)
        for mine in of_sender.values()
        for theirs in of_sender.values()
        if mine is not theirs
    )
    return next(((one, other) for one, other in islice(pairs, MOST_PAIRS) if run.may_exchange(one, other)), None)


def taken_already(waiting: Record, receiver: int, views: Mapping[int, LedgerView]) -> tuple[Site, Sent, Sent] | None:
    """Where `receiver`, which is `waiting` for a message by its sender's name, has taken that one from anybody, and
    what another rank has sent, which nobody took and which may have come first.
    """
    step, message = waiting.step, waiting.step.message
    if step.op != RECV or message is None or waiting.step.is_from_anybody:
        return None
    likewise = _likewise(step.target, message.tag)
    received = [record for record in calls_in(views[receiver]) if record.step.op == RECV and likewise(record)]
    before = [record for record in received if record.step.is_from_anybody and record.state is State.ENDED]
    own = [record for record in before if record.step.message and record.step.message.peer == message.peer]
    if not own or own[-1].step.site is None:
        return None
    numbers = {_number(record, record.step.message.peer) for record in received if record.step.message}
    sends = list(_sent_to(receiver, likewise, views))
    first = [sent for sent in sends if _number(sent.record, sent.rank) == _number(own[-1], message.peer)]
    run = Run(views)
    others = (sent for sent in sends if sent.rank != message.peer and _number(sent.record, sent.rank) not in numbers)
    for sent in others if first else ():
        if run.free(*sorted((first[0], sent), key=lambda one: one.record.begin_ns)):
            return own[-1].step.site, first[0], sent
    return None


def _next_of_each(received: Sequence[Record]) -> list[Record]:
    """The first of `received` of each sender that is named, if it was not taken from anybody before."""
    found: dict[int, Record] = {}
    for record in received:
        if record.step.message is not None:
            found.setdefault(record.step.message.peer, record)
    return [record for record in found.values() if not record.step.is_from_anybody and record.state is State.ENDED]


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
    run, found = Run(views, aside), list[tuple[Sent, Sent]]()
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
        for record in calls_in(view)
        if record.step.op == SEND
        and record.step.message is not None
        and record.step.site is not None
        and record.step.site.place == (file, line)
    }


def newest_from_anybody(view: LedgerView, before: int) -> Record | None:
    """The newest receive of a rank before its step number `before`, if it took from anybody and is over."""
    received = [record for record in calls_in(view) if record.step.op == RECV and record.index < before]
    newest = received[-1] if received else None
    over = newest is not None and newest.state is State.ENDED
    return newest if newest is not None and over and newest.step.is_from_anybody else None


def taken_from_anybody(view: LedgerView) -> Iterator[Record]:
    """The receives of a rank that have taken from anybody, and are over."""
    received = (record for record in calls_in(view) if record.step.op == RECV and record.state is State.ENDED)
    return (record for record in received if record.step.is_from_anybody)


def _is_there(record: Record, taken: Taken) -> bool:
    return record.step.site is not None and record.step.site.place == taken.site.place


def _is_in_function(record: Record, taken: Taken) -> bool:
    site = record.step.site
    return site is not None and (site.file, site.function) == (taken.site.file, taken.site.function)


def _number(record: Record, sender: int) -> tuple[int, int] | None:
    """Which message of which sender it is an end of; None where nobody can say."""
    message = record.step.message
    return None if message is None or message.number == NO_SEQUENCE else (sender, message.number)


def _received(taken: Taken, view: LedgerView) -> list[Record]:
    """All that the receiver took with this tag, in the order in which it set out to."""
    likewise = _likewise(taken.group, taken.tag)
    return [record for record in calls_in(view) if record.step.op == RECV and likewise(record)]


def _sends_to(receiver: int, taken: Taken, views: Mapping[int, LedgerView]) -> Iterator[Sent]:
    return _sent_to(receiver, _likewise(taken.group, taken.tag), views)


def _sent_to(receiver: int, likewise: Callable[[Record], bool], views: Mapping[int, LedgerView]) -> Iterator[Sent]:
    for rank, view in views.items():
        for record in calls_in(view):
            message = record.step.message
            if record.step.op == SEND and likewise(record) and message is not None and message.peer == receiver != rank:
                yield Sent(rank, record)


def _on_group(group: str) -> Callable[[Record], bool]:
    return lambda record: record.step.target == group


def _likewise(group: str, tag: int) -> Callable[[Record], bool]:
    """Whether a record is of a message on that group with that tag."""
    return lambda record: (
        record.step.target == group and record.step.message is not None and record.step.message.tag == tag
    )
