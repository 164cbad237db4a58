"""Which keys ranks have set, and which they have got, as their ledgers tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from rankdrill.diagnosis.stores.keys import SETTING
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import STORE_WAITS, Kind, Step

__all__ = ["Use", "alike", "number_in", "numbers_in", "uses_of"]

ALIKE = 0.7  # of the letters: one is taken for the other misspelled
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Use:
    """Rank `rank` has set a key, or has got what another one set."""

    rank: int
    record: Record

    @property
    def key(self) -> str:
        return self.record.step.target

    @property
    def sets(self) -> bool:
        return self.record.step.op in SETTING


def uses_of(views: Sequence[LedgerView]) -> list[Use]:
    """Each key that a rank has set or waited for, and that was there then; of one rank in order."""
    return [Use(rank, record) for rank, view in enumerate(views) for record in _of(view)]


def _of(view: LedgerView) -> Iterator[Record]:
    for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED):
        if record.step.op in SETTING or record.step.op in STORE_WAITS:
            yield record


def alike(awaited: Step, use: Use) -> float:
    """How likely the key of `use` was meant for the one that is `awaited`, from 0 to 1.

    It has the same name in another store, or differs in one number, or in a few letters.
    """
    key, other = awaited.target, use.key
    if key == other:
        return float(use.record.step.digest != awaited.digest)
    mine, theirs = key.split("/"), other.split("/")
    if len(mine) == len(theirs):  # what both begin with says nothing
        differing = [(one, two) for one, two in zip(mine, theirs, strict=True) if one != two]
        mine, theirs = [one for one, _ in differing], [two for _, two in differing]
    one, two = "/".join(mine), "/".join(theirs)
    if number_in(key, other) is not None:
        return 1.0
    likeness = SequenceMatcher(None, one, two, autojunk=False).ratio()
    return likeness if likeness >= ALIKE else 0.0


@lru_cache(maxsize=1 << 14)  # asked for each two of many keys
def numbers_in(key: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(key))


def number_in(key: str, other: str) -> tuple[int, int, int] | None:
    """The one number in which two keys differ: which of their numbers it is, and as each has it; None if they differ in
    anything else.
    """
    mine, theirs = _NUMBER.findall(key), _NUMBER.findall(other)
    if _NUMBER.split(key) != _NUMBER.split(other):
        return None
    both = enumerate(zip(mine, theirs, strict=True))
    differing = [(place, int(one), int(two)) for place, (one, two) in both if one != two]
    return differing[0] if len(differing) == 1 else None
