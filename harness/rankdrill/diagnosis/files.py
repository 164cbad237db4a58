"""Updates of files that were lost: ranks read a file, and write it anew with something more, each without the others'.

It is told where it has happened: both had read it before either began to write it, and what they wrote is not the same.
Not where ranks have met between the two writes: what is written in turn is meant to take the place of what was there.
Who has looked whether it is there, at the line that reads it where it is, and writes it under a lock that others take,
has read it. Who holds a lock of the file's name that nobody else takes, as the others hold theirs, undoes what they
write, also if it is the same.
Who does so without the lock that several others hold meanwhile is at fault, also if it had only seen that there was no
such file yet. A lock counts as held where it is seen to be given up later, or where another rank waited for it until
then: that its file was closed nobody sees. Whoever may have held it is not at fault.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import FILE_LOCKS, REPLACING, Kind, Site

__all__ = ["lost_file_update"]

_LOOKS = "stat"
FEWEST_UNDER_A_LOCK = 2
"""Ranks that change a file while they hold one lock: then it is that file's."""


@dataclass(slots=True)
class _Update:
    """Rank `rank` has read a file in `got`, and has written it anew in `put`: all of `content`, None if not known.

    `epoch` is the last collective before that, `under` the locks that it held. Where it has only seen that the file was
    not there, that is `got`, and it `looked` only; `reads_there` where that line reads it if it is. `told` says that
    between the two it may have heard from others. `since` says of locks that it has taken, and has not been seen to
    give up, when it did. `own` is where it took a lock that nobody else takes.
    """

    rank: int
    got: Record
    put: Record
    epoch: tuple[str, int]
    content: list[int] | None
    under: set[str]
    told: bool
    since: dict[str, int]
    looked: bool
    reads_there: bool = False
    own: Site | None = None

    @property
    def lines(self) -> tuple[object, object]:
        return self.got.step.site, self.put.step.site

    def is_lost(self, other: _Update) -> bool:
        """Whether what one of the two has written is gone."""
        if self.rank == other.rank or self.epoch != other.epoch or not self.content or not other.content:
            return False
        both_had_read = self.got.end_ns < other.put.begin_ns and other.got.end_ns < self.put.begin_ns
        kept_apart = self.own is not None and self.own == other.own
        return both_had_read and (self.content != other.content or kept_apart)


def lost_file_update(views: Mapping[int, LedgerView]) -> Finding | None:
    """The updates of one file that were lost, by ranks whose ledgers are `views`; None where none were."""
    by_file: dict[int, list[_Update]] = {}
    for rank, view in views.items():
        for update in _updates_of(rank, view):
            by_file.setdefault(update.put.step.digest, []).append(update)
    locks = _locks(views) if by_file else {}
    reading = set(_reading(views.values())) if by_file else set()
    for update in (each for updates in by_file.values() for each in updates):
        update.under |= {lock for lock, at in update.since.items() if _was_kept(at, update.put, locks[lock].takings)}
        update.reads_there = _place(update.got) in reading
        own = (lock for lock in {*update.under, *update.since} if len(locks[lock].ranks) == 1)
        update.own = next((locks[lock].site for lock in own if _is_named_after(lock, update.put)), None)
    return next((found for updates in by_file.values() if (found := _lost_of(updates)) is not None), None)


def _lost_of(updates: Sequence[_Update]) -> Finding | None:
    sure = {lock for one in updates for lock in one.under}
    locks = Counter(
        lock for lock, _ in {(lock, one.rank) for one in updates for lock in {*one.under, *one.since} & sure}
    )
    guards = {lock for lock, ranks in locks.items() if ranks >= FEWEST_UNDER_A_LOCK}
    for one in updates:
        one.looked = one.looked and not (one.reads_there and guards & {*one.under, *one.since})
    # Whoever is the first to come may write the file, and all at once, unless others take care not to.
    known = [one for one in updates if not one.looked or (not one.told and bool(guards))]
    lost = [one for one in known if any(one.is_lost(other) and _may_tell(one, other, guards) for other in known)]
    if not lost:
        return None
    those = {one.rank: one for one in reversed(lost)}
    free = {rank: one for rank, one in those.items() if not _guarded(one, guards) and guards.isdisjoint(one.since)}
    holding = [one for one in those.values() if _guarded(one, guards)]
    those = free or those
    name = os.path.basename(lost[0].got.step.target)
    alike: dict[object, list[int]] = {}
    for rank in sorted(those):
        alike.setdefault(those[rank].lines, []).append(rank)
    sides = [_side(ranks, those, name) for ranks in alike.values()]
    if free and holding:
        s = "s" if len(holding) == 1 else ""
        did = f"hold{s} the lock of {os.path.basename(min(guards))!r} meanwhile"
        sides.append(side_of([one.rank for one in holding], did, [one.put.step.site for one in holding]))
    return Finding(FindingKind.LOST_UPDATE, f"file {name!r}", "content", tuple(sides), tuple(sorted(those)))


def _is_named_after(lock: str, put: Record) -> bool:
    """Whether the lock is that of the file, as its name says: of one held for something else nothing follows."""
    name = os.path.basename(put.step.fingerprint.removeprefix("to ") if put.step.op in REPLACING else put.step.target)
    return os.path.basename(lock).startswith(os.path.splitext(name)[0])


def _may_tell(one: _Update, other: _Update, guards: Set[str]) -> bool:
    """Whether both had read the file, or one of them takes care and the other does not."""
    return not (one.looked or other.looked) or _guarded(one, guards) is not _guarded(other, guards)


def _guarded(one: _Update, guards: Set[str]) -> bool:
    return not guards.isdisjoint(one.under)


def _side(ranks: Sequence[int], those: Mapping[int, _Update], name: str) -> Side:
    first = those[ranks[0]]
    s = "s" if len(ranks) == 1 else ""
    looked = first.got.step.op == _LOOKS
    read = f"find{s} no {name!r} there" if looked else f"read{s} {name!r} at {first.got.step.site}"
    did = f"{read} and then write{s} it anew, undoing what others did to it between the two"
    return side_of(ranks, did, [those[rank].put.step.site for rank in ranks])


def _updates_of(rank: int, view: LedgerView) -> Iterator[_Update]:
    """Those of `rank`, each once all that it wrote is known."""
    got: dict[int, Record] = {}
    contents: dict[str, list[int] | None] = {}
    epoch = ("", 0)
    under: dict[str, tuple[int, list[_Update]]] = {}  # by the locks that have been taken, and when
    heard = -1  # the last record by which others may have said something
    absent: dict[int, Record] = {}
    found: list[_Update] = []
    for record in view.records:
        step = record.step
        if step.kind is Kind.COLLECTIVE and step.message is None:
            epoch = (step.target, step.sequence)
        if step.kind in (Kind.COLLECTIVE, Kind.STORE):
            heard = record.index
        if step.kind is Kind.FILE and step.op == _LOOKS and record.state is State.RAISED:
            absent[step.digest] = record
        if step.kind is not Kind.FILE or record.state is not State.ENDED:
            continue
        if step.op in FILE_LOCKS and "LOCK_UN" in step.fingerprint:
            for update in under.pop(step.target, (0, ()))[1]:
                update.under.add(step.target)
                del update.since[step.target]
        elif step.op in FILE_LOCKS:
            under[step.target] = record.end_ns, []
        put = step.op in REPLACING
        if step.op == "open":
            put = _is_written_anew(step.fingerprint)
            if put:
                contents[step.target] = []
            elif _is_read(step.fingerprint):
                got[step.digest] = record
        elif step.op == "write":
            _add(contents, step.target, step.digest)
        unseen = absent.pop(step.digest, None)
        before = got.pop(step.digest, unseen) if put else None
        if before is not None and before.thread == record.thread:
            content = contents.setdefault(step.target, None)
            since = {lock: at for lock, (at, _) in under.items()}
            looked = before.step.op == _LOOKS
            found.append(_Update(rank, before, record, epoch, content, set(), heard > before.index, since, looked))
            for _, updates in under.values():
                updates.append(found[-1])
    yield from found


@dataclass(slots=True)
class _Lock:
    """When it was got, in order, and since when its rank had wanted it; by which ranks, and where first."""

    takings: list[tuple[int, int]]
    ranks: set[int]
    site: Site | None


def _locks(views: Mapping[int, LedgerView]) -> dict[str, _Lock]:
    """By file."""
    found: dict[str, _Lock] = {}
    for rank, view in views.items():
        for record in view.where(lambda kind, state: kind is Kind.FILE and state is State.ENDED):
            if record.step.op in FILE_LOCKS and "LOCK_UN" not in record.step.fingerprint:
                lock = found.setdefault(record.step.target, _Lock([], set(), record.step.site))
                lock.takings.append((record.end_ns, record.begin_ns))
                lock.ranks.add(rank)
    for lock in found.values():
        lock.takings.sort()
    return found


def _reading(views: Iterable[LedgerView]) -> Iterator[tuple[int, tuple[str, int] | None]]:
    """Each file, and a line that opens it to read it."""
    for view in views:
        for record in view.where(lambda kind, state: kind is Kind.FILE and state is State.ENDED):
            if record.step.op == "open" and _is_read(record.step.fingerprint):
                yield _place(record)


def _place(record: Record) -> tuple[int, tuple[str, int] | None]:
    return record.step.digest, record.step.site.place if record.step.site is not None else None


def _was_kept(since: int, put: Record, takings: Sequence[tuple[int, int]]) -> bool:
    """Whether the next one to take the lock that was got at `since` waited from before `put` to after it."""
    place = bisect_right(takings, since, key=itemgetter(0))
    return place < len(takings) and takings[place][1] < put.begin_ns and put.end_ns < takings[place][0]


def _add(contents: dict[str, list[int] | None], path: str, digest: int) -> None:
    known = contents.get(path)
    if not digest:
        contents[path] = None
    elif known is not None:
        known.append(digest)


def _is_read(mode: str) -> bool:
    return ("r" in mode and "+" not in mode) if mode.islower() else mode.startswith("O_RDONLY")


def _is_written_anew(mode: str) -> bool:
    return "w" in mode if mode.islower() else "O_TRUNC" in mode
