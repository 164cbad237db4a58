"""What may have told one rank that another had begun to send, as far as ledgers tell.

A rank has heard of a send by what ended since: a collective that one who knew of it entered after that, a message of
such a one, a store or file that it looked at and somebody has changed, an object that it unpickled.
Where a ledger does not reach back so far, or anything else is in doubt, it is taken to have heard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rankdrill.diagnosis.groups import members_in
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import DEFAULT_GROUP, LEAVES_GROUP, NEW_GROUP, NO_SEQUENCE, RECV, SEND, Kind, Step

__all__ = ["Run", "Sent", "calls_in"]

MOST_HOPS = 2  # by which one may have heard of a send: who further on might be told of it is taken to be told
_ALONE = frozenset({Kind.MEMORY, Kind.CLOCK})  # what a rank does for itself
_SEEN_BY_LOOKING = frozenset({Kind.FILE, Kind.STORE, Kind.GROUP})  # and by no other way
_LOOKS = frozenset({"stat", "lstat", "listdir", "scandir", "read", "get", "multi_get", "wait", "check", "num_keys"})


_Entry: TypeAlias = tuple[Kind, str, int]
"""A call: its kind, group and number."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Rank `rank` sent in the step `record`."""

    rank: int
    record: Record


def calls_in(view: LedgerView) -> Iterator[Record]:
    return view.where(lambda kind, state: kind is Kind.COLLECTIVE)


class Run:
    """What all ranks did, to be asked what may have told one of another."""

    def __init__(self, views: Mapping[int, LedgerView], aside: Collection[tuple[int, int]] = ()) -> None:
        self._views = views
        self._aside = aside  # steps, by rank and index, that tell nobody anything
        self._entered: dict[_Entry, dict[int, int]] = {}  # when each rank began
        self._ends: dict[tuple[str, str, int, int, int, int], int] = {}  # op, group, from, to, tag, number: likewise
        self._members = {name: ranks for view in views.values() for name, ranks in members_in(view).items()}
        self._members[DEFAULT_GROUP] = tuple(views)
        for rank, view in views.items():
            for record in view.where(lambda kind, state: kind in (Kind.COLLECTIVE, Kind.GROUP)):
                self._read(rank, record)

    def _read(self, rank: int, record: Record) -> None:
        step, message = record.step, record.step.message
        if message is not None:
            if message.number != NO_SEQUENCE and message.peer >= 0:
                ends = (rank, message.peer) if step.op == SEND else (message.peer, rank)
                self._ends[step.op, step.target, *ends, message.tag, message.number] = record.begin_ns
        elif (entry := _entry(step)) is not None:
            self._entered.setdefault(entry, {})[rank] = record.begin_ns

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
        if step.op == LEAVES_GROUP:
            return False
        entry = _entry(step)
        if step.kind in _SEEN_BY_LOOKING and entry is None:
            waited = step.kind is Kind.FILE and record.begin_ns < since  # for a lock, which is let go without a step
            return waited or self._changed(step.kind, since, until, rank)
        if record.state is not State.ENDED or (entry is None and message is None):
            return True
        if message is not None:
            other = RECV if step.op == SEND else SEND  # gloo ends a send when its receive has been posted
            ends = (rank, message.peer) if step.op == SEND else (message.peer, rank)
            came = {message.peer: self._ends.get((other, step.target, *ends, message.tag, message.number))}
        else:
            entered = self._entered.get(entry, {}) if entry is not None else {}
            came = {member: entered.get(member) for member in self._members.get(step.target, ())}
        return not came or any(
            began is None or (began >= since and self._has_heard(other, first, began, hops - 1))
            for other, began in came.items()
            if other != rank
        )


def _entry(step: Step) -> _Entry | None:
    """By what all members' parts in a call are known to be one; None where others have no part in it, or nobody knows.

    All ranks make a group together, members or not, and may leave one another behind there as in a collective.
    """
    together = step.kind is Kind.COLLECTIVE or step.op == NEW_GROUP
    known = together and step.message is None and step.sequence != NO_SEQUENCE
    return (step.kind, step.target, step.sequence) if known else None


def _only_looks(record: Record) -> bool:
    step = record.step
    opens_to_read = step.op == "open" and step.fingerprint in ("r", "rb", "rt", "O_RDONLY")
    return step.op in _LOOKS or opens_to_read
