"""What was measured: one cell per way and payload, all its repetitions kept."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.gathering.on_rank import Sample
from benchmarks.gathering.payloads import PAYLOADS


@dataclass(frozen=True)
class Repetition:
    """One call on all ranks: the slowest rank's milliseconds, the sum of CPU seconds, the worst rank's growth."""

    ms: float
    cpu_s: float
    growth: int | None


@dataclass
class Cell:
    """One way with one payload. `missing` says why there are no repetitions; `broken` that it should have had some."""

    way: str
    name: str
    family: str
    payload: str
    repetitions: list[Repetition] = field(default_factory=list)
    missing: str = ""
    broken: bool = False

    @property
    def ms(self) -> float | None:
        return statistics.median(each.ms for each in self.repetitions) if self.repetitions else None

    @property
    def cpu_s(self) -> float | None:
        return statistics.median(each.cpu_s for each in self.repetitions) if self.repetitions else None

    @property
    def growth(self) -> float | None:
        known = [each.growth for each in self.repetitions if each.growth is not None]
        return statistics.median(known) if known else None


class Results:
    """The cells of one session, found by way and payload."""

    def __init__(self, size: int, cells: Sequence[Cell] = ()) -> None:
        self.size = size
        self._cells = {(cell.way, cell.payload): cell for cell in cells}

    def add(self, cell: Cell) -> None:
        self._cells[cell.way, cell.payload] = cell

    def find(self, way: str, payload: str) -> Cell | None:
        return self._cells.get((way, payload))

    def of(self, payload: str) -> list[Cell]:
        return [cell for cell in self._cells.values() if cell.payload == payload]

    def payloads(self) -> list[str]:
        return list(dict.fromkeys(cell.payload for cell in self._cells.values()))

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._cells.values())

    def slowdown(self, way: str, beside: str, payload: str) -> float | None:
        """How many times as long `way` takes as `beside`; None unless both were measured."""
        one, other = self.find(way, payload), self.find(beside, payload)
        return ratio(one.ms if one else None, other.ms if other else None)

    def growth_of_arriving(self, way: str, payload: str) -> float | None:
        """The growth of `way` as a multiple of all ranks' payloads; None for payloads lost in what a process needs."""
        cell = self.find(way, payload)
        if cell is None or PAYLOADS[payload].small:
            return None
        return ratio(cell.growth, float(PAYLOADS[payload].arriving(self.size)))

    def as_json(self) -> list[dict[str, Any]]:
        return [{**asdict(cell), "ms": cell.ms, "cpu_s": cell.cpu_s, "growth": cell.growth} for cell in self]


def ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def repetitions(by_rank: Sequence[Sequence[Sample]]) -> list[Repetition]:
    """Repetitions out of what each rank took."""
    return [_repetition(samples) for samples in zip(*by_rank, strict=True)]


def _repetition(samples: Sequence[Sample]) -> Repetition:
    growths = [sample.growth for sample in samples if sample.growth is not None]
    return Repetition(
        max(sample.seconds for sample in samples) * 1e3,
        sum(sample.cpu for sample in samples),
        max(growths) if growths else None,
    )
