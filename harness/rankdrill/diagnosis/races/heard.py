"""What may have told one rank that another had begun to send, as far as ledgers tell.

A rank has heard of a send by what ended since: a collective that one who knew of it entered after that, a message of
such a one, a key that it looked at and such a one has changed, a file that anybody has, an object that it unpickled.
So it is followed from rank to rank, back to the send. Where a ledger does not reach back so far, or anything else is in
doubt, it is taken to have heard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rankdrill.diagnosis.groups import members_in
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import DEFAULT_GROUP, LEAVES_GROUP, NEW_GROUP, NO_SEQUENCE, RECV, SEND, Kind, Step

__all__ = ["Run", "Sent", "calls_in"]

MOST_LOOKED_AT = 4096  # records, for two sends: of what it would take more to tell nobody knows
_ALONE = frozenset({Kind.MEMORY, Kind.CLOCK})  # what a rank does for itself
_SEEN_BY_LOOKING = frozenset({Kind.FILE, Kind.STORE, Kind.GROUP})  # and by no other way
_OF_ONE_KEY = frozenset({"get", "add", "compare_set"})
_CHANGES_ONE = frozenset({"add", "append", "compare_set", "delete_key", "set"})
_TELLS_NOTHING = frozenset({"dump", "dumps", "set"})  # to whoever does it
_IN_MEMORY = "_io.BytesIO"  # what is unpickled from there has come in another step
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
        return not _Rumour(self, first).has_reached(second.rank, until, second.record.index)

    def _by_memory(self, since: int, until: int, rank: int) -> bool:
        """Whether others may have changed what `rank` sees without a step: a file, meanwhile; at any time something in
        memory that they share.
        """
        shares = any(True for view in self._views.values() for _ in view.where(lambda kind, state: kind is Kind.SHM))
        return shares or self._changed(Kind.FILE, since, until, rank)

    def _changed(self, kind: Kind, since: int, until: int, rank: int) -> bool:
        """Whether another than `rank` did something of that kind meanwhile that others can see."""
        return any(True for _ in self.changes(kind, since, until, rank))

    def changes(self, kind: Kind, since: int, until: int, rank: int, key: int = 0) -> Iterator[tuple[int, Record]]:
        """What others than `rank` did of that kind meanwhile that others can see; if given, to the key of that digest
        alone.
        """
        for other, view in self._views.items():
            for record in view.where(lambda its, state: its is kind) if other != rank else ():
                seen = since < record.begin_ns < until and not _only_looks(record)
                if seen and (key in (0, record.step.digest) or record.step.op not in _CHANGES_ONE):
                    yield other, record

    def since(self, rank: int, begun: int, until: int) -> list[Record] | None:
        """What `rank` did that ended in that time, and may have told it something; None if its ledger lacks it."""
        view = self._views[rank]
        if view.torn or not view.records or (view.dropped and view.records[0].begin_ns > begun):
            return None
        records = view.where(lambda kind, state: kind not in _ALONE)
        return [each for each in records if begun < each.end_ns <= until and (rank, each.index) not in self._aside]

    def listens_to(self, rank: int, sent: Sent, until: int) -> bool:
        """Whether `rank` has begun to receive what may be that message, and has not ended before `until`: it may look
        whether that has come without a step.
        """
        message = sent.record.step.message
        if message is None or message.peer != rank:
            return False
        receiving = self._views[rank].where(lambda kind, state: kind is Kind.COLLECTIVE)
        return any(
            each.step.op == RECV
            and each.step.message is not None
            and (each.step.is_from_anybody or each.step.message.peer == sent.rank)
            and each.begin_ns < until
            and not (each.state is State.ENDED and each.end_ns <= until)
            for each in receiving
        )

    def came_to(self, rank: int, record: Record) -> dict[int, int | None]:
        """When those began that `rank` met in that collective, or by that message; None where nobody knows."""
        step, message = record.step, record.step.message
        if message is not None:
            other = RECV if step.op == SEND else SEND  # gloo ends a send when its receive has been posted
            ends = (rank, message.peer) if step.op == SEND else (message.peer, rank)
            return {message.peer: self._ends.get((other, step.target, *ends, message.tag, message.number))}
        entry = _entry(step)
        entered = self._entered.get(entry, {}) if entry is not None else {}
        return {member: entered.get(member) for member in self._members.get(step.target, ())}


class _Rumour:
    """That the `first` send has begun: which ranks of a run may have come to know of it, and when."""

    def __init__(self, run: Run, first: Sent) -> None:
        self._run = run
        self._first = first
        self._since = first.record.begin_ns
        self._left = MOST_LOOKED_AT
        self._known: dict[tuple[int, int], bool] = {}

    def has_reached(self, rank: int, until: int, but: int = -1) -> bool:
        """Whether `rank` may know of it before `until`, by something else than its step number `but`."""
        if rank == self._first.rank:
            return True
        if (rank, until) not in self._known:
            self._known[rank, until] = False  # what comes back to it has told it nothing
            self._known[rank, until] = self._is_told(rank, until, but)
        return self._known[rank, until]

    def _is_told(self, rank: int, until: int, but: int) -> bool:
        if self._run.listens_to(rank, self._first, until):
            return True
        records = self._run.since(rank, self._since, until)
        self._left -= len(records or ())
        if records is None or self._left < 0:
            return True
        return any(self._tells(rank, record, until) for record in records if record.index != but)

    def _tells(self, rank: int, record: Record, until: int) -> bool:
        """Whether what `rank` did in `record` may have told it."""
        step = record.step
        if step.op == LEAVES_GROUP or (step.kind in (Kind.OBJECT, Kind.STORE) and step.op in _TELLS_NOTHING):
            return False
        if step.kind is Kind.OBJECT and (step.op, step.target) == ("load", _IN_MEMORY):
            return False
        entry = _entry(step)
        if step.kind is Kind.STORE and entry is None:
            key = step.digest if step.op in _OF_ONE_KEY else 0
            changes = self._run.changes(Kind.STORE, self._since, until, rank, key)
            return any(self.has_reached(other, change.begin_ns) for other, change in changes)
        if step.kind in _SEEN_BY_LOOKING and entry is None:
            waited = step.kind is Kind.FILE and record.begin_ns < self._since  # for a lock, which is let go silently
            return waited or any(True for _ in self._run.changes(step.kind, self._since, until, rank))
        if record.state is not State.ENDED or (entry is None and step.message is None):
            return True
        came = self._run.came_to(rank, record)
        return not came or any(
            began is None or (began >= self._since and self.has_reached(other, began))
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
