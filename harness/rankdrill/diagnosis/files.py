"""Updates of files that were lost: ranks read a file, and write it anew with something more, each without the others'.

It is told where it has happened: both had read it before either began to write it, and what they wrote is not the same.
Not where ranks have met between the two writes: what is written in turn is meant to take the place of what was there.
Who does so without the lock that the others hold meanwhile is at fault, also if it had only seen that there was no such
file yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.ledger import GROUP_OP, LedgerView, Record, State
from rankdrill.step import FILE_LOCKS, REPLACING, Kind

__all__ = ["lost_file_update"]

_LOOKS = "stat"


@dataclass(slots=True)
class _Update:
    """Rank `rank` has read a file in `got`, and has written it anew in `put`: all of `content`, None if not known.

    `epoch` is the last collective before that, `under` the locks that it held. Where it has only seen that the file was
    not there, that is `got`.
    """

    rank: int
    got: Record
    put: Record
    epoch: tuple[str, int]
    content: list[int] | None
    under: frozenset[str]

    @property
    def lines(self) -> tuple[object, object]:
        return self.got.step.site, self.put.step.site

    def is_lost(self, other: _Update) -> bool:
        """Whether what one of the two has written is gone."""
        if self.rank == other.rank or self.epoch != other.epoch or not self.content or not other.content:
            return False
        if (self.is_first or other.is_first) and bool(self.under) == bool(other.under):
            return False  # whoever is the first to come may say so, and all at once
        both_had_read = self.got.end_ns < other.put.begin_ns and other.got.end_ns < self.put.begin_ns
        return both_had_read and self.content != other.content

    @property
    def is_first(self) -> bool:
        return self.got.step.op == _LOOKS


def lost_file_update(views: Mapping[int, LedgerView]) -> Finding | None:
    """The updates of one file that were lost, by ranks whose ledgers are `views`; None where none were."""
    by_file: dict[int, list[_Update]] = {}
    for rank, view in views.items():
        for update in _updates_of(rank, view):
            by_file.setdefault(update.got.step.digest, []).append(update)
    return next((found for updates in by_file.values() if (found := _lost_of(updates)) is not None), None)


def _lost_of(updates: Sequence[_Update]) -> Finding | None:
    lost = [one for one in updates if any(one.is_lost(other) for other in updates)]
    if not lost:
        return None
    those = {one.rank: one for one in reversed(lost)}
    locked = {lock for one in those.values() for lock in one.under}
    free = {rank: one for rank, one in those.items() if not one.under}
    holding = [one for rank, one in those.items() if rank not in free]
    those = free or those
    name = os.path.basename(lost[0].got.step.target)
    alike: dict[object, list[int]] = {}
    for rank in sorted(those):
        alike.setdefault(those[rank].lines, []).append(rank)
    sides = [_side(ranks, those, name) for ranks in alike.values()]
    if free and holding:
        s = "s" if len(holding) == 1 else ""
        did = f"hold{s} the lock of {os.path.basename(min(locked))!r} meanwhile"
        sides.append(side_of([one.rank for one in holding], did, [one.put.step.site for one in holding]))
    return Finding(FindingKind.LOST_UPDATE, f"file {name!r}", "content", tuple(sides), tuple(sorted(those)))


def _side(ranks: Sequence[int], those: Mapping[int, _Update], name: str) -> Side:
    first = those[ranks[0]]
    s = "s" if len(ranks) == 1 else ""
    read = f"find{s} no {name!r} there" if first.is_first else f"read{s} {name!r} at {first.got.step.site}"
    did = f"{read} and then write{s} it anew, undoing what others did to it between the two"
    return side_of(ranks, did, [those[rank].put.step.site for rank in ranks])


def _updates_of(rank: int, view: LedgerView) -> Iterator[_Update]:
    """Those of `rank`, each once all that it wrote is known."""
    got: dict[int, Record] = {}
    contents: dict[str, list[int] | None] = {}
    epoch = ("", 0)
    held: set[str] = set()
    absent: dict[str, Record] = {}
    found: list[_Update] = []
    for record in view.records:
        step = record.step
        if step.kind is Kind.COLLECTIVE and step.message is None and step.op != GROUP_OP:
            epoch = (step.target, step.sequence)
        if step.kind is Kind.FILE and step.op == _LOOKS and record.state is State.RAISED:
            absent[step.target] = record
        if step.kind is not Kind.FILE or record.state is not State.ENDED:
            continue
        if step.op in FILE_LOCKS:
            held = held - {step.target} if "LOCK_UN" in step.fingerprint else held | {step.target}
        put = step.op in REPLACING
        if step.op == "open":
            put = _is_written_anew(step.fingerprint)
            if put:
                contents[step.target] = []
            elif _is_read(step.fingerprint):
                got[step.digest] = record
        elif step.op == "write":
            _add(contents, step.target, step.digest)
        unseen = absent.pop(step.target, None)
        before = got.pop(step.digest, unseen) if put else None
        if before is not None and before.thread == record.thread:
            content = contents.setdefault(step.target, None)
            found.append(_Update(rank, before, record, epoch, content, frozenset(held)))
    yield from found


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
