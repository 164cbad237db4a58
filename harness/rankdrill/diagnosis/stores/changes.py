"""What ranks do to keys of stores, as ledgers tell: in one call, or by a get, check or add of 0 and a set after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import ADDS_NOTHING, FILE_LOCKS, JOINS_STORE, LEAVES_GROUP, Kind, Meeting, Site

__all__ = ["SWAP", "Change", "changes_of"]

_ADDING = frozenset({"add", "append"})
SWAP = "compare_set"
_GETS, _SETS = frozenset({"get", "multi_get"}), frozenset({"set", "multi_set"})
_PLAIN = _GETS | _SETS | {"check"}  # of other keys: these keep nobody away from this one
_OVER = (State.ENDED, State.RAISED)
_MEETINGS = (Kind.COLLECTIVE, Kind.GROUP)
_NEVER_NS = 1 << 62
_ALONE = frozenset({Kind.OBJECT, Kind.MEMORY, Kind.CLOCK})  # what a rank does for itself


@dataclass(frozen=True, slots=True)
class Change:
    """Rank `rank` changed a key in the step `put`, after it got it in `got`; without that, in one call, or it tried to.

    `under` is the call on another key by which it may have taken a lock before that, the last one since the collective
    before, which is `epoch`, called at `after`. If `free`, no step since then may have made the rank wait for
    another one; if `unseeing`, it has not even seen what others did, but for the one time that it got the key. If it
    has `met` others, that was in a collective between the two.
    """

    rank: int
    put: Record
    got: Record | None
    epoch: tuple[str, int]
    free: bool
    unseeing: bool = False
    after: Site | None = None
    under: Record | None = None
    met: bool = False

    @property
    def lines(self) -> tuple[Site | None, Site | None]:
        """Where it got the key, and where it set it."""
        return self.got.step.site if self.got is not None else None, self.put.step.site

    def over(self, other: Change) -> bool:
        """Whether `other` was made between the get and the set of this one, and is lost."""
        assert self.got is not None
        return self.got.end_ns < other.put.begin_ns and other.put.end_ns < self.put.begin_ns

    def meets(self, other: Change) -> bool:
        """Whether both got before either set."""
        assert self.got is not None
        assert other.got is not None
        return self.got.end_ns < other.put.begin_ns and other.got.end_ns < self.put.begin_ns


def changes_of(rank: int, view: LedgerView) -> Iterator[Change]:
    """Those of `rank`, in order, of all keys; a set of what was not got before says nothing."""
    got: dict[int, Record] = {}
    long_got: dict[int, Record] = {}  # before the last collective
    epoch, free_for, after = ("", 0), _Freedom(), None
    under: Record | None = None
    over_ns = 0  # when the last of all collectives before was over
    for record in view.records:
        step = record.step
        if step.kind in _MEETINGS and step.op != LEAVES_GROUP:  # that meets nobody
            # What was issued before and is waited for only then may be over because of what another one did since.
            late = over_ns > record.begin_ns
            over_ns = max(over_ns, record.end_ns if record.state in _OVER else _NEVER_NS)
            epoch, free_for = (step.target, step.sequence), _Freedom(none=late or step.message is not None)
            after, under = step.site, None
            long_got, got = {**long_got, **got}, {}
        elif step.op == JOINS_STORE:  # who connects waits for the server alone, and that may wait for all
            if Meeting.of(step).waits_for_all:
                free_for, got, long_got = _Freedom(none=True), {}, {}
        elif step.kind is not Kind.STORE:
            free_for.take(record)
            if step.op in FILE_LOCKS:
                got, long_got = {}, {}
        elif record.state is State.ENDED:
            long_before = long_got.pop(step.digest, None) if step.op in _SETS else None
            before = got.pop(step.digest, long_before) if step.op in _SETS else None
            if (before is not None and before.thread == record.thread) or _adds(record):
                met = before is not None and before is long_before
                free = not met and free_for.key(step.digest), not met and free_for.once(step.digest)
                lock = under if before is not None and under is not None and under.step.digest != step.digest else None
                yield Change(rank, record, before, epoch, *free, after, lock, met)
            elif step.op == SWAP:
                yield Change(rank, record, None, epoch, False)
            if step.op in _GETS or _adds_nothing(record):
                got[step.digest] = record
            elif step.op == "check":  # who sets what is not there yet goes by that
                got.setdefault(step.digest, record)
            elif step.op not in _PLAIN:
                got, long_got = {}, {}
            if step.op not in _PLAIN:
                under = record
            free_for.take(record)


def _adds(record: Record) -> bool:
    return record.step.op in _ADDING and not _adds_nothing(record)


def _adds_nothing(record: Record) -> bool:
    """Whether a counter was only asked for."""
    return record.step.op == "add" and record.step.fingerprint == ADDS_NOTHING


class _Freedom:
    """For which keys a rank may have waited for nobody since the last collective; if `none`, for none."""

    def __init__(self, *, none: bool = False) -> None:
        self._for_none = none
        self._asked: list[int] = []  # keys of which it has seen what others did

    def take(self, record: Record) -> None:
        step = record.step
        if step.kind is Kind.STORE:
            if step.op not in _SETS:
                self._asked.append(step.digest)
        elif step.kind not in _ALONE:
            self._for_none = True

    def key(self, key: int) -> bool:
        return not self._for_none and {*self._asked} <= {key}

    def once(self, key: int) -> bool:
        return not self._for_none and self._asked == [key]
