"""Hangs in point to point: the one message that was never sent or never received, or a cycle of such waits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rankdrill.diagnosis import message_words as words
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.misaddressed import Misaddressed, misaddressed
from rankdrill.diagnosis.traffic import MessageEnd, Traffic
from rankdrill.diagnosis.waits import FEW, Wait, hopeless
from rankdrill.ledger import LedgerView
from rankdrill.step import ANYBODY

__all__ = ["unmatched_message", "unreceived_message"]


def unmatched_message(
    waits: Mapping[int, Wait], views: Mapping[int, LedgerView], returned: Collection[int]
) -> Finding | None:
    """What is wrong where ranks wait for ever for a message; None where that is not why they wait.

    `views` are all ranks' ledgers, `returned` the ranks that came to their end; those in neither `returned` nor
    `waits` may still come.
    """
    lost = hopeless(waits, views.keys() - waits.keys() - set(returned))
    direct = {rank: wait for rank, wait in lost.items() if not set(wait.missing).isdisjoint(returned)}
    if any(wait.record.step.message is None for wait in direct.values()):
        return None  # who left out a collective explains more
    roots = direct or {rank: lost[rank] for rank in _cycle(lost)}
    ends = list(_ends(roots))
    traffic = Traffic(views)
    account = _Account(waits, views, returned)
    finding = _of_ends(ends, ends + traffic.left_over(), traffic, account)
    if finding is not None or not roots:
        return finding
    if not direct and len(ends) == len(roots):
        return _deadlock(list(roots.values()))
    if ends:
        return account.missing(ends[0], (ends[0].peer,) if ends[0].peer in returned else ())
    return next((account.nobody_sends(wait) for wait in roots.values() if _from_anybody(wait)), None)


def unreceived_message(views: Mapping[int, LedgerView]) -> Finding | None:
    """What is wrong where all ranks returned, and a message was sent and never received, or the other way round."""
    traffic = Traffic(views)
    left_over = traffic.left_over()
    account = _Account({}, views, views.keys())
    finding = _of_ends(left_over, left_over, traffic, account)
    return finding or (account.missing(left_over[0], ()) if left_over else None)


def _of_ends(
    ends: Sequence[MessageEnd], left_over: Sequence[MessageEnd], traffic: Traffic, account: _Account
) -> Finding | None:
    """What explains one of `ends`, if anything does."""
    left_over = list({(end.rank, end.record.index): end for end in left_over}.values())
    for end in ends:
        found = misaddressed(end, left_over, traffic)
        if found is not None:
            return account.misaddressed(found)
    streams = {end.stream for end in left_over}
    for end in ends:
        culprit = _miscounted(end, traffic, {*streams, end.stream})
        if culprit is not None:
            return account.missing(end, (culprit,))
    return None


def _miscounted(end: MessageEnd, traffic: Traffic, undecided: Collection[object]) -> int | None:
    """Who of the two has done one too few, or one too many, if all others' messages with this tag are as many."""
    counts = {
        traffic.met(stream)
        for stream in traffic.streams
        if (stream.group, stream.tag) == (end.stream.group, end.stream.tag) and stream not in undecided
    }
    if counts == {end.number + 1}:
        return end.peer
    return end.rank if counts == {end.number} else None


def _ends(waits: Mapping[int, Wait]) -> Iterator[MessageEnd]:
    ordered = sorted(waits.values(), key=lambda wait: (wait.record.begin_ns, wait.rank))
    for wait in ordered:
        end = MessageEnd.of(wait.rank, wait.record)
        if end is not None:
            yield end


def _cycle(lost: Mapping[int, Wait]) -> list[int]:
    """Ranks of which each waits for the next and the last for the first, from the lowest on; of several, one."""
    for first in sorted(lost):
        path = [first]
        while True:
            following = min((rank for rank in lost[path[-1]].missing if rank in lost), default=None)
            if following is None:
                break
            if following in path:
                cycle = path[path.index(following) :]
                lowest = cycle.index(min(cycle))
                return cycle[lowest:] + cycle[:lowest]
            path.append(following)
    return []


def _from_anybody(wait: Wait) -> bool:
    message = wait.record.step.message
    return message is not None and message.peer == ANYBODY


def _deadlock(cycle: Sequence[Wait]) -> Finding:
    """Each waits for the next; all are right by themselves."""
    names = [f"rank {wait.rank}" for wait in (*cycle[:FEW], cycle[0])]
    if len(cycle) > FEW:
        names.insert(FEW, f"… {len(cycle) - FEW} more …")
    first, second, *more = names
    told = f"{first} waits for {second}" + "".join(f", which waits for {name}" for name in more)
    sides: dict[object, list[Wait]] = {}
    for wait in cycle:
        step = wait.record.step
        alike = (step.op, step.site) if len(cycle) > FEW else wait.rank
        sides.setdefault(alike, []).append(wait)
    return Finding(FindingKind.DEADLOCK, told, "order", tuple(_in_cycle(waits) for waits in sides.values()))


def _in_cycle(waits: Sequence[Wait]) -> Side:
    record = waits[0].record
    did = words.waits(record) if len(waits) == 1 else f"wait in {record.step.op}, each for the next"
    return side_of([wait.rank for wait in waits], did, [wait.record.step.site for wait in waits])


class _Account:
    """Tells what ranks did that wait, or have returned."""

    def __init__(self, waits: Mapping[int, Wait], views: Mapping[int, LedgerView], returned: Collection[int]) -> None:
        self._waits = waits
        self._views = views
        self._returned = returned

    def misaddressed(self, found: Misaddressed) -> Finding:
        """Two ends that were meant for each other."""
        ends = sorted(found.ends, key=lambda end: (end is not found.odd, not end.sends))
        told = tuple(side_of([end.rank], _does(end), [end.site]) for end in ends)
        culprits = (found.odd.rank,) if found.odd is not None else ()
        receive = next(end for end in ends if not end.sends)
        return Finding(FindingKind.UNMATCHED, _message(receive), found.argument, told, culprits)

    def missing(self, end: MessageEnd, culprits: tuple[int, ...]) -> Finding:
        """An end whose other end never comes."""
        extra = culprits == (end.rank,)
        half = "send" if end.sends is extra else "recv"
        sides = [side_of([end.rank], _does(end), [end.site])]
        if end.peer != end.rank:
            sides.append(self._side_without(end))
        if culprits == (end.peer,):
            sides.reverse()
        argument = f"{'extra' if extra else 'missing'} {half}"
        return Finding(FindingKind.UNMATCHED, _message(end), argument, tuple(sides), culprits)

    def nobody_sends(self, wait: Wait) -> Finding:
        """A receive from anybody, where nobody is left to send."""
        step = wait.record.step
        assert step.message is not None
        did = f"{words.waits(wait.record)}, and nobody is left who could send one"
        told = f"{step.op} on {step.target!r}"
        side = side_of([wait.rank], did, [step.site])
        return Finding(FindingKind.UNMATCHED, told, "extra recv", (side,), ())

    def _side_without(self, end: MessageEnd) -> Side:
        """What the other rank does instead."""
        rank, stream = end.peer, end.stream
        lacks = words.without(
            sending=not end.sends, peer=end.rank, tag=stream.tag, number=end.number, group=stream.group
        )
        if rank in self._waits:
            record = self._waits[rank].record
            return side_of([rank], f"{words.waits(record)} {lacks}", [record.step.site])
        after, site = words.last_call(self._views[rank]) if rank in self._views else ("", None)
        return side_of([rank], f"returned {lacks}{after}", [site])


def _does(end: MessageEnd) -> str:
    stream, site = end.stream, end.site
    if end.sends:
        return words.sends(end.shown, stream.target, stream.tag, stream.group, site)
    if end.record.state.open:
        return words.waits(end.record)
    return words.expects(end.shown, stream.source, stream.tag, stream.group, site)


def _message(end: MessageEnd) -> str:
    stream = end.stream
    return words.message(stream.source, stream.target, stream.tag, end.number, stream.group)
