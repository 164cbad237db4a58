"""The sweep: which cases a drill runs. Faults are derived from the steps a gather was seen to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.caller_faults import CALLER_FAULTS, caller_fault_case
from rankdrill.conformance.case import NO_FAULT, Case
from rankdrill.conformance.drill import Drill
from rankdrill.conformance.payloads import SMALL
from rankdrill.conformance.runner import Limits, StrikePoints
from rankdrill.conformance.strikes import DEFAULT_STRIKES, Effect, Spread, Use, effect_of, uses_of
from rankdrill.conformance.survey import StrikePoint
from rankdrill.faults import STRIKES, Fault, Plan, When, parse_fault

__all__ = ["BIG", "Sweep"]

BIG = "8mib"
BIG_TOO = ("kill", "full", "torn", "truncate")
"""With that payload too these strike, in the largest world: a transfer or a write under way is no single step then."""


@dataclass(frozen=True)
class Sweep:
    """What to drill. `strikes` are names of strikes and caller faults, `lines` faults of the plan language; with
    neither, everything that applies. With `payloads` empty, faults meet a small payload and some a big one; with
    nothing broken, gathers meet all.

    By default a strike meets the first step of each op, and every rank of every world, but not each op on each rank:
    the ops are dealt out among worlds and ranks. With `thorough` it meets every step of every rank.
    """

    adapters: Mapping[str, Adapter]
    sizes: Sequence[int]
    strikes: Sequence[str] = (*DEFAULT_STRIKES, *CALLER_FAULTS)
    lines: Sequence[str] = ()
    payloads: Sequence[str] = ()
    thorough: bool = False

    @classmethod
    def choose(
        cls,
        adapters: Mapping[str, Adapter],
        sizes: Sequence[int],
        faults: Sequence[str],
        *,
        payloads: Sequence[str] = (),
        thorough: bool = False,
    ) -> Sweep:
        """Sort the words of a command into strikes and lines. Raises `PlanError` for a line that does not parse,
        or names a rank that none of the worlds has.
        """
        named = (*STRIKES, *CALLER_FAULTS)
        strikes = tuple(word for word in faults if word in named)
        lines = tuple(word for word in faults if word not in named and word != NO_FAULT)
        for line in lines:
            if caller_fault_case("", max(sizes), SMALL, line) is None:
                Plan((parse_fault(line),)).check(max(sizes))
        return cls(
            adapters, sizes, strikes if faults else (*DEFAULT_STRIKES, *CALLER_FAULTS), lines, payloads, thorough
        )

    def drill(self, limits: Limits, jobs: int, *, tells: bool = False) -> Drill:
        """The drill of this sweep; see `Drill`."""
        cases = [*self._lines(), *self._plain(), *self._missteps()]
        return Drill(self.adapters, cases, self._strike, limits, jobs, tells)

    def _plain(self) -> Iterator[Case]:
        """Every path with nothing broken: a test by itself, and the survey that the faults are derived from."""
        if self.lines and not self.strikes:
            return
        for name, adapter in self.adapters.items():
            chosen = [payload for payload in self.payloads or adapter.payloads if payload in adapter.payloads]
            # The survey's payload first: the sooner the faults are known, the better the worlds are used.
            for payload in sorted(chosen, key=lambda payload: payload != SMALL):
                for size in self.sizes:
                    yield Case(name, size, payload)

    def _lines(self) -> Iterator[Case]:
        payloads = self.payloads or (SMALL,)
        for name, line, size, payload in product(self.adapters, self.lines, self.sizes, payloads):
            case = caller_fault_case(name, size, payload, line) or _case(name, size, payload, parse_fault(line))
            if case.rank < size:
                yield case

    def _missteps(self) -> Iterator[Case]:
        """Every rank goes wrong in every way, where there is another to notice."""
        chosen = [name for name in CALLER_FAULTS if name in self.strikes]
        for name, caller_fault, size in product(self.adapters, chosen, (size for size in self.sizes if size > 1)):
            for rank in range(size):
                yield Case(name, size, SMALL, caller_fault, f"rank {rank}: {caller_fault}", rank)

    def _strike(self, case: Case, found: StrikePoints) -> Sequence[Case]:
        """The cases that one survey gives rise to."""
        if case.fault:
            return ()
        faults: list[Fault] = []
        for use in (use for strike in self.strikes if strike in STRIKES for use in uses_of(STRIKES[strike])):
            points = [self._chosen(use, case.path, its) for its in found]
            if case.size == 1 and effect_of(use.strike.name) is Effect.STOPS:
                dealt = []  # nobody is left to continue it
            elif case.payload in (self.payloads or (use.payload or SMALL,)):
                turn = self.sizes.index(case.size)
                dealt = _all(points) if self.thorough else _dealt(points, turn, len(self.sizes))
            elif self._big(case, use):
                # At one rank, neither the first nor the last: what a big payload adds does not depend on where.
                dealt = [(case.size // 2, point) for point in points[case.size // 2][:1]]
            else:
                dealt = []
            faults.extend(use.fault(rank, point) for rank, point in dealt)
        return [_case(case.path, case.size, case.payload, fault) for fault in faults]

    def _big(self, case: Case, use: Use) -> bool:
        chosen = case.payload == BIG and not self.payloads and case.size == max(self.sizes)
        return chosen and (use.strike.name in BIG_TOO or self.thorough)

    def _chosen(self, use: Use, path: str, points: Sequence[StrikePoint]) -> list[StrikePoint]:
        """Those of a rank's `points` at which `use` is to strike."""
        chosen: dict[object, StrikePoint] = {}
        for point in points:
            if (
                point.strike != use.strike.name
                or point.when not in use.whens
                or point.kind not in self.adapters[path].kinds
            ):
                continue
            alike = {
                Spread.EACH_OP: (point.when, point.kind, point.op),
                Spread.EACH_KIND: (point.when, point.kind),
                Spread.ONCE: point.when,
            }
            chosen.setdefault(point if self.thorough else alike[use.spread], point)
        # All that strike before a step, then all after: dealt out in turns, both then reach worlds of every size.
        return sorted(chosen.values(), key=lambda point: list(When).index(point.when))


def _all(points: Sequence[Sequence[StrikePoint]]) -> list[tuple[int, StrikePoint]]:
    return [(rank, point) for rank, its in enumerate(points) for point in its]


def _dealt(points: Sequence[Sequence[StrikePoint]], turn: int, turns: int) -> list[tuple[int, StrikePoint]]:
    """Not the product of points, ranks and world sizes, but each of them: in the worlds together (this is the one of
    `turn`, of `turns`) every point on some rank, and in each world every rank at some point.
    """
    owners: dict[StrikePoint, list[int]] = {}
    for rank, point in _all(points):
        owners.setdefault(point, []).append(rank)
    dealt = [
        (ranks[at // turns % len(ranks)], point)
        for at, (point, ranks) in enumerate(owners.items())
        if at % turns == turn
    ]
    met = {rank for rank, _ in dealt}
    dealt += [(rank, its[rank % len(its)]) for rank, its in enumerate(points) if its and rank not in met]
    return dealt


def _case(path: str, size: int, payload: str, fault: Fault) -> Case:
    rank = -1 if fault.where.rank is None else fault.where.rank
    return Case(path, size, payload, fault.what.name, str(fault), rank)
