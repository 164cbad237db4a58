"""What ranks did that wait for a message, or were waited for: findings in words, with call sites."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.messages.misaddressed import Misaddressed
from rankdrill.diagnosis.messages.stopped_short import stopped_short_at
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import Site

__all__ = ["Account"]


class Account:
    """Tells what ranks did that wait, or have returned."""

    def __init__(self, waits: Mapping[int, Wait], views: Mapping[int, LedgerView], traffic: Traffic) -> None:
        self._waits = waits
        self._views = views
        self._traffic = traffic

    def misaddressed(self, found: Misaddressed | None) -> Finding | None:
        """Two ends that were meant for each other."""
        if found is None:
            return None
        ends = sorted(found.ends, key=lambda end: (end is not found.odd, not end.sends))
        told = tuple(side_of([end.rank], _does(end), [end.site]) for end in ends)
        culprits = (found.odd.rank,) if found.odd is not None else ()
        receive = next(end for end in ends if not end.sends)
        return Finding(FindingKind.UNMATCHED, _message(receive), found.argument, told, culprits)

    def miscounted(self, end: MessageEnd, odd: tuple[int, ...]) -> Finding | None:
        """An end whose other end never comes, because of one of those that are `odd`."""
        return self.missing(end, odd if len(odd) == 1 else ()) if odd else None

    def stopped_short(self, end: MessageEnd, returned: Collection[int]) -> Finding | None:
        """An end whose peer is among those that have returned, and would have come to the other half."""
        return self.left_out(end, stopped_short_at(end, self._views, returned))

    def left_out(self, end: MessageEnd, at: Site | None) -> Finding | None:
        """An end whose peer has left out the other half `at` that line."""
        return self.missing(end, (end.peer,), at) if at is not None else None

    def missing(self, end: MessageEnd, culprits: tuple[int, ...], usual: Site | None = None) -> Finding:
        """An end whose other end never comes; `usual` is where its peer used to do the other half, if known."""
        extra = culprits == (end.rank,)
        half = "send" if end.sends is extra else "recv"
        sides = [side_of([end.rank], _does(end), [end.site])]
        if end.peer != end.rank:
            sides.append(self._without(end))
        if culprits == (end.peer,):
            sides = [*self._leaving_out(end, usual), *reversed(sides)]
        argument = f"{'extra' if extra else 'missing'} {half}"
        return Finding(FindingKind.UNMATCHED, _message(end), argument, tuple(sides), culprits)

    def _leaving_out(self, end: MessageEnd, usual: Site | None) -> Iterator[Side]:
        """Where the other rank did the same for others at that turn, failing that the time before, failing that where
        all others do it, if that is known.
        """
        in_turn = self._traffic.site_in_turn(end) if usual is None else usual
        sites = {in_turn} if in_turn is not None else self._traffic.sites_met(end)
        if len(sites) == 1:
            did = words.leaves_out(sending=not end.sends, peer=end.rank, tag=end.stream.tag, group=end.stream.group)
            yield side_of([end.peer], did, list(sites))

    def nobody_sends(self, wait: Wait) -> Finding:
        """A receive from anybody, where nobody is left to send."""
        step = wait.record.step
        assert step.message is not None
        did = f"{words.waits(wait.record)}, and nobody is left who could send one"
        told = f"{step.op} on {step.target!r}"
        side = side_of([wait.rank], did, [step.site])
        return Finding(FindingKind.UNMATCHED, told, "extra recv", (side,), ())

    def _without(self, end: MessageEnd) -> Side:
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
