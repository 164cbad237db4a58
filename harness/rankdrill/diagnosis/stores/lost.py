"""Lost updates: ranks get a key, and set it to what follows from that, each without what another set meanwhile.

Told only where it has happened: both had got the key before either set it, and whoever set it last has wiped out what
the other did. Updates that a lock, a barrier, a message or a turn keeps apart never lie so. Of ranks that did the same
from the same lines with no collective between, and were lucky, it is told too: nothing orders them either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.stores.source import depends_on
from rankdrill.ledger import GROUP_OP, LedgerView, Record, State
from rankdrill.step import FILE_LOCKS, Kind, Site

__all__ = ["lost_update"]

_PLAIN = frozenset({"check", "get", "set"})  # of other keys: these order nothing that follows


@dataclass(frozen=True, slots=True)
class _Update:
    """Rank `rank` got a key in one record and set it in the other; `epoch` counts the collectives before."""

    rank: int
    got: Record
    put: Record
    epoch: int

    @property
    def lines(self) -> tuple[Site | None, Site | None]:
        return self.got.step.site, self.put.step.site

    def over(self, begin_ns: int, end_ns: int) -> bool:
        """Whether what happened from `begin_ns` to `end_ns` lies between its get and its set."""
        return self.got.end_ns < begin_ns and end_ns < self.put.begin_ns

    def meets(self, other: _Update) -> bool:
        """Whether both got before either set, and they set different values."""
        apart = self.got.end_ns >= other.put.begin_ns or other.got.end_ns >= self.put.begin_ns
        return not apart and self.put.step.fingerprint != other.put.step.fingerprint


def lost_update(views: Mapping[int, LedgerView]) -> Finding | None:
    """The updates of one key that were lost, by ranks whose ledgers are `views`; None where none were."""
    by_key: dict[int, list[_Update]] = {}
    added: dict[int, list[tuple[int, Record]]] = {}
    for rank, view in views.items():
        for update in _updates(rank, view):
            by_key.setdefault(update.put.step.digest, []).append(update)
        for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED):
            if record.step.op == "append" or (record.step.op == "add" and record.step.fingerprint != "+0"):
                added.setdefault(record.step.digest, []).append((rank, record))
    for key, updates in by_key.items():
        found = _lost_of(updates, added.get(key, []))
        if found is not None:
            return found
    return None


def _lost_of(updates: Sequence[_Update], added: Sequence[tuple[int, Record]]) -> Finding | None:
    met = [one for one in updates if any(one.rank != other.rank and one.meets(other) for other in updates)]
    over = [
        one
        for one in updates
        if any(rank != one.rank and one.over(record.begin_ns, record.end_ns) for rank, record in added)
    ]
    lost = [one for one in met or over if _follows(one)]
    if not lost or (met and len({one.rank for one in lost}) < 2):
        return None
    alike = {(one.lines, one.epoch) for one in lost}
    those = {one.rank: one for one in reversed(updates) if (one.lines, one.epoch) in alike}
    sides = [*_sides(those), *(() if met else _adding(added, those))]
    key = lost[0].put.step.target
    return Finding(FindingKind.LOST_UPDATE, f"key {key!r}", "value", tuple(sides), tuple(sorted(those)))


def _updates(rank: int, view: LedgerView) -> Iterator[_Update]:
    """Each set of a key that the rank has got before, with nothing between that may be there to keep others away."""
    got: dict[int, Record] = {}
    epoch = 0
    for record in view.records:
        step = record.step
        if step.kind in (Kind.COLLECTIVE, Kind.GROUP) and step.op != GROUP_OP:
            epoch += 1
            got.clear()
        elif step.op in FILE_LOCKS or (step.kind is Kind.STORE and step.op not in _PLAIN):
            got.clear()
        elif step.kind is Kind.STORE and record.state is State.ENDED:
            if step.op == "get":
                got[step.digest] = record
            elif step.op == "set" and step.digest in got:
                before = got.pop(step.digest)
                if before.thread == record.thread:
                    yield _Update(rank, before, record, epoch)


def _follows(update: _Update) -> bool:
    got, put = update.lines
    return got is not None and put is not None and depends_on(got, put)


def _sides(those: Mapping[int, _Update]) -> list[Side]:
    alike: dict[object, list[int]] = {}
    for rank in sorted(those):
        alike.setdefault(those[rank].lines, []).append(rank)
    return [_side(ranks, those) for ranks in alike.values()]


def _side(ranks: Sequence[int], those: Mapping[int, _Update]) -> Side:
    first = those[ranks[0]]
    got = first.got.step.where.removeprefix(", ")
    gets, sets = ("gets", "sets") if len(ranks) == 1 else ("get", "set")
    did = f"{gets} {first.put.step.target!r} {got} and {sets} it without what others did to it meanwhile"
    return side_of(ranks, did, [those[rank].put.step.site for rank in ranks])


def _adding(added: Sequence[tuple[int, Record]], those: Mapping[int, _Update]) -> list[Side]:
    """The others, which change the key in one call."""
    by_rank = {rank: record for rank, record in reversed(added) if rank not in those}
    alike: dict[str, list[int]] = {}
    for rank, record in sorted(by_rank.items()):
        alike.setdefault(record.step.op, []).append(rank)
    return [
        side_of(
            ranks,
            f"{op}{'s' if len(ranks) == 1 else ''} to it in one call",
            [by_rank[rank].step.site for rank in ranks],
        )
        for op, ranks in alike.items()
    ]
