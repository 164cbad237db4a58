"""Results of a drill, counted: by path and strike, and over all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.conformance.case import CaseResult, Judgement

__all__ = ["Cell", "Tally"]


@dataclass(frozen=True)
class Cell:
    """What came of one strike on one path, over all ranks, sizes and steps struck."""

    counts: Mapping[Judgement, int]

    @property
    def worst(self) -> Judgement:
        return max(self.counts, key=lambda judgement: judgement.severity)

    @property
    def cases(self) -> int:
        return sum(self.counts.values())

    @property
    def failures(self) -> int:
        return sum(count for judgement, count in self.counts.items() if not judgement.passed)


class Tally:
    """The results of a drill so far. Rows and columns come in the order given, then in the order of first results."""

    def __init__(self, results: Iterable[CaseResult], paths: Sequence[str] = (), strikes: Sequence[str] = ()) -> None:
        self.results = tuple(results)
        self._cells: dict[tuple[str, str], Counter[Judgement]] = {}
        for result in self.results:
            key = (result.case.path, result.case.strike)
            self._cells.setdefault(key, Counter())[result.judgement] += 1
        self.paths = _ordered(paths, (path for path, _ in self._cells))
        self.strikes = _ordered(strikes, (strike for _, strike in self._cells))

    def cell(self, path: str, strike: str) -> Cell | None:
        """None where the strike does not apply to the path."""
        counts = self._cells.get((path, strike))
        return Cell(counts) if counts else None

    @property
    def counts(self) -> Mapping[Judgement, int]:
        """How many cases came to each judgement, from best to worst; only those that occur."""
        found = Counter(result.judgement for result in self.results)
        return {judgement: found[judgement] for judgement in Judgement if found[judgement]}

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """What failed, the worst first."""
        failed = [result for result in self.results if not result.passed]
        return tuple(sorted(failed, key=lambda result: (-result.judgement.severity, _place(result))))

    @property
    def ok(self) -> bool:
        return bool(self.results) and not self.failures


def _place(result: CaseResult) -> tuple[str, str, int, int, str]:
    case = result.case
    return case.path, case.strike, case.size, case.rank, case.fault


def _ordered(given: Sequence[str], found: Iterable[str]) -> tuple[str, ...]:
    present = dict.fromkeys(found)
    return tuple(name for name in given if name in present) + tuple(name for name in present if name not in given)
