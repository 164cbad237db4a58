"""What ranks have set in stores, and asked for, read out of their ledgers once: by line, by round, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankdrill.diagnosis.stores.keys import SETTING
from rankdrill.diagnosis.stores.spelling import words_of
from rankdrill.diagnosis.stores.uses import numbers_in
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import STORE_WAITS, Kind, Site

__all__ = ["StoreCalls"]

_Form = tuple[tuple[str, ...], int, tuple[int, ...]]
"""A key but for one of its numbers: its words, which number that is, and the others."""


class StoreCalls:
    """Those of all ranks, by rank; `whole` where no ledger has lost any."""

    def __init__(self, views: Sequence[LedgerView]) -> None:
        self.size = len(views)
        self.whole = not any(view.dropped for view in views)
        self.sets: list[list[Record]] = [[] for _ in views]
        self.asks: list[list[Record]] = [[] for _ in views]
        self.looked_for: set[str] = set()
        for rank, view in enumerate(views):
            for record in view.where(lambda kind, _state: kind is Kind.STORE):
                self._take(rank, record)
        self.names: list[set[str]] = [{record.step.target for record in sets} for sets in self.sets]
        self.set_by_anybody: set[str] = set().union(*self.names)
        self._asked_at = [self._by_line(asks) for asks in self.asks]
        self._set_at = [self._by_line(sets) for sets in self.sets]
        self._newest: list[dict[_Form, int]] = [{} for _ in views]
        for rank, sets in enumerate(self.sets):
            for record in sets:
                for form, number in _forms(record.step.target):
                    self._newest[rank][form] = max(number, self._newest[rank].get(form, number))

    def _take(self, rank: int, record: Record) -> None:
        op, state = record.step.op, record.state
        if op in SETTING and state is State.ENDED:
            self.sets[rank].append(record)
        elif op in STORE_WAITS and state is not State.RAISED:
            self.asks[rank].append(record)
        if op in STORE_WAITS or op == "check":
            self.looked_for.add(record.step.target)

    @staticmethod
    def _by_line(records: Sequence[Record]) -> dict[Site, list[Record]]:
        found: dict[Site, list[Record]] = {}
        for record in records:
            if record.step.site is not None:
                found.setdefault(record.step.site, []).append(record)
        return found

    def lines_that_set(self) -> set[Site]:
        return {site for of_rank in self._set_at for site in of_rank}

    def set_at(self, rank: int, site: Site) -> Sequence[Record]:
        """What it has set at that line, in order."""
        return self._set_at[rank].get(site, ())

    def asked_at(self, rank: int, site: Site) -> Sequence[Record]:
        """What it has asked for at that line, in order; the last one perhaps in vain."""
        return self._asked_at[rank].get(site, ())

    def set_in_turn(self, site: Site, turn: int) -> dict[int, Record]:
        """By rank what was set there, of those that have been there that many times before."""
        visits = ((rank, self.set_at(rank, site)) for rank in range(self.size))
        return {rank: records[turn] for rank, records in visits if len(records) > turn}

    def asked_in_turn(self, site: Site, turn: int) -> dict[int, Record]:
        """By rank what was asked for there, of those that have been there that many times before."""
        visits = ((rank, self.asked_at(rank, site)) for rank in range(self.size))
        return {rank: records[turn] for rank, records in visits if len(records) > turn}

    def rounds(self, key: str, rank: int) -> Iterator[tuple[int, int, int]]:
        """Of numbers in `key` of which `rank` has set others: which it is, as it is there, and the greatest set."""
        for place, (form, wanted) in enumerate(_forms(key)):
            newest = self._newest[rank].get(form)
            if newest is not None and newest != wanted:
                yield place, wanted, newest


def _forms(key: str) -> Iterator[tuple[_Form, int]]:
    words, numbers = words_of(key), tuple(numbers_in(key))
    for place, number in enumerate(numbers):
        yield (words, place, numbers[:place] + numbers[place + 1 :]), number
