"""The sweep: which cases a drill runs. Faults are derived from the steps a gather was seen to take, not listed by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.bench import Limits, Survey
from rankdrill.conformance.case import NO_FAULT, Case
from rankdrill.conformance.drill import Drill
from rankdrill.conformance.payloads import SMALL
from rankdrill.conformance.strikes import DEFAULT_STRIKES, Spread, Use, uses_of
from rankdrill.faults import STRIKES, Fault, Plan, When
from rankdrill.step import Kind

__all__ = ["BIG", "Sweep"]

Site: TypeAlias = tuple[When, Kind, str, int]
"""Where a strike falls: when, seen from a step; the step's kind and op; and which of these steps it is, from 1."""

BIG = "8mib"
"""The payload that is struck too, in the largest world, at the first step that each strike is meant for."""


@dataclass(frozen=True)
class Sweep:
    """What to drill. `strikes` are names of strikes, `lines` faults of the plan language; with neither every strike that
    applies. With `payloads` empty, faults meet a small payload and some a big one, and the gather without faults all.

    By default a strike meets the first step of each op, and every rank, but not each op on each rank: the ops are dealt
    out among the ranks. With `thorough` it meets every step of every rank.
    """

    adapters: Mapping[str, Adapter]
    sizes: Sequence[int]
    strikes: Sequence[str] = DEFAULT_STRIKES
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
        strikes = tuple(word for word in faults if word in STRIKES)
        lines = tuple(word for word in faults if word not in STRIKES and word != NO_FAULT)
        for line in lines:
            Plan((Fault.parse(line),)).check(max(sizes))
        return cls(adapters, sizes, strikes if faults else DEFAULT_STRIKES, lines, payloads, thorough)

    def drill(self, limits: Limits, jobs: int) -> Drill:
        """The drill of this sweep."""
        return Drill(self.adapters, [*self._lines(), *self._plain()], self._strike, limits, jobs)

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
        for name in self.adapters:
            for line in self.lines:
                fault = Fault.parse(line)
                for size in (size for size in self.sizes if (fault.where.rank or 0) < size):
                    for payload in self.payloads or (SMALL,):
                        yield _case(name, size, payload, fault)

    def _strike(self, case: Case, survey: Survey) -> Sequence[Case]:
        """The cases that one survey gives rise to."""
        if case.fault:
            return ()
        faults: list[Fault] = []
        for use in (use for strike in self.strikes for use in uses_of(STRIKES[strike])):
            sites = [self._sites(use, case.path, steps) for steps in survey.steps]
            if case.payload in (self.payloads or (use.payload or SMALL,)):
                dealt = _all(sites) if self.thorough else _dealt(sites)
            elif case.payload == BIG and not self.payloads and case.size == max(self.sizes):
                # At one rank, neither the first nor the last: what a big payload adds does not depend on where.
                dealt = [(case.size // 2, site) for site in sites[case.size // 2][:1]]
            else:
                dealt = []
            faults.extend(use.fault(rank, *site) for rank, site in dealt)
        return [_case(case.path, case.size, case.payload, fault) for fault in faults]

    def _sites(self, use: Use, path: str, steps: Sequence[str]) -> list[Site]:
        """Where `use` can strike a rank that was seen to take `steps`."""
        counts: Counter[str] = Counter()
        struck: set[str] = set()
        sites: list[Site] = []
        for step in steps:
            kind, op = Kind(step.partition(".")[0]), step.partition(".")[2]
            whens = [when for when in use.whens if use.strike.meant_for(kind, op, when)]
            if kind not in self.adapters[path].kinds or not whens:
                continue
            counts[step] += 1
            alike = {Spread.EACH_OP: step, Spread.EACH_KIND: str(kind), Spread.ONCE: ""}[use.spread]
            if alike not in struck or self.thorough:
                struck.add(alike)
                sites.extend((when, kind, op, counts[step]) for when in whens)
        return sites


def _all(sites: Sequence[Sequence[Site]]) -> list[tuple[int, Site]]:
    return [(rank, site) for rank, its in enumerate(sites) for site in its]


def _dealt(sites: Sequence[Sequence[Site]]) -> list[tuple[int, Site]]:
    """Every site on one rank at least, and every rank at one site at least: not the product of both."""
    owners: dict[Site, list[int]] = {}
    for rank, site in _all(sites):
        owners.setdefault(site, []).append(rank)
    dealt = [(ranks[turn % len(ranks)], site) for turn, (site, ranks) in enumerate(owners.items())]
    met = {rank for rank, _ in dealt}
    dealt += [(rank, its[rank % len(its)]) for rank, its in enumerate(sites) if its and rank not in met]
    return dealt


def _case(path: str, size: int, payload: str, fault: Fault) -> Case:
    rank = -1 if fault.where.rank is None else fault.where.rank
    return Case(path, size, payload, fault.what.name, str(fault), rank)
