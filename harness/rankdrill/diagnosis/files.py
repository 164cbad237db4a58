"""Updates of files that were lost: ranks read a file, and write it anew with something more, each without the others'.

It is told where it has happened: both had read it before either began to write it, and what they wrote is not the same.
Not where ranks have met between the two writes: what is written in turn is meant to take the place of what was there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.ledger import GROUP_OP, LedgerView, Record, State
from rankdrill.step import REPLACING, Kind

__all__ = ["lost_file_update"]


@dataclass(slots=True)
class _Update:
    """Rank `rank` has read a file in `got`, and has written it anew in `put`: all of `content`, None if not known.

    `epoch` is the last collective before that.
    """

    rank: int
    got: Record
    put: Record
    epoch: tuple[str, int]
    content: list[int] | None

    @property
    def lines(self) -> tuple[object, object]:
        return self.got.step.site, self.put.step.site

    def is_lost(self, other: _Update) -> bool:
        """Whether what one of the two has written is gone."""
        if self.rank == other.rank or self.epoch != other.epoch or not self.content or not other.content:
            return False
        both_had_read = self.got.end_ns < other.put.begin_ns and other.got.end_ns < self.put.begin_ns
        return both_had_read and self.content != other.content


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
    name = os.path.basename(lost[0].got.step.target)
    alike: dict[object, list[int]] = {}
    for rank in sorted(those):
        alike.setdefault(those[rank].lines, []).append(rank)
    # As of keys of a store: of several that do the same none is more at fault than the next.
    return Finding(
        FindingKind.LOST_UPDATE,
        f"file {name!r}",
        "content",
        tuple(_side(ranks, those, name) for ranks in alike.values()),
    )


def _side(ranks: Sequence[int], those: Mapping[int, _Update], name: str) -> Side:
    read = those[ranks[0]].got.step.site
    s = "s" if len(ranks) == 1 else ""
    did = f"read{s} {name!r} at {read} and then write{s} it anew, undoing what others did to it between the two"
    return side_of(ranks, did, [those[rank].put.step.site for rank in ranks])


def _updates_of(rank: int, view: LedgerView) -> Iterator[_Update]:
    """Those of `rank`, each once all that it wrote is known."""
    got: dict[int, Record] = {}
    contents: dict[str, list[int] | None] = {}
    epoch = ("", 0)
    found: list[_Update] = []
    for record in view.records:
        step = record.step
        if step.kind is Kind.COLLECTIVE and step.message is None and step.op != GROUP_OP:
            epoch = (step.target, step.sequence)
        if step.kind is not Kind.FILE or record.state is not State.ENDED:
            continue
        put = step.op in REPLACING
        if step.op == "open":
            put = _is_written_anew(step.fingerprint)
            if put:
                contents[step.target] = []
            elif _is_read(step.fingerprint):
                got[step.digest] = record
        elif step.op == "write":
            _add(contents, step.target, step.digest)
        before = got.pop(step.digest, None) if put else None
        if before is not None and before.thread == record.thread:
            found.append(_Update(rank, before, record, epoch, contents.setdefault(step.target, None)))
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
