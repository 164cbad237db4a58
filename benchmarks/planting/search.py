"""How many examples it takes until a draw shows a mistake, and what it shrinks to."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.planting.mistake import Mistake
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from rankdrill_strategies import as_code, per_rank, picklables, same

__all__ = ["DRAWS", "OURS", "Found", "search"]

EXAMPLES, EVERYDAY_EXAMPLES = 200, 30  # to the first failure, at most
SECONDS = 10.0  # to find it and shrink it


def _ours(ranks: int) -> st.SearchStrategy[Any]:
    return st.lists(picklables(), min_size=1, max_size=1) if ranks == 1 else per_rank(picklables(), ranks)


def _basic(ranks: int) -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
    parts = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
    return st.lists(parts, min_size=ranks, max_size=ranks)


# By name: what draws all ranks' payloads.
OURS = "picklables"
DRAWS: dict[str, Callable[[int], st.SearchStrategy[Any]]] = {OURS: _ours, "st.recursive": _basic}


@dataclass
class Found:
    """One mistake by one draw: examples to the first failure for each seed (None: not found), and the smallest."""

    mistake: str
    everyday: bool
    draw: str
    limit: int
    examples: list[int | None] = field(default_factory=list)
    seconds: float = 0.0  # to find it once and shrink it
    smallest: str = ""

    @property
    def median(self) -> float | None:
        """Examples to the first failure, in the middle of all seeds; None where most did not find it."""
        middle = statistics.median(self.limit * 2 if each is None else each for each in self.examples)
        return None if middle > self.limit else middle

    @property
    def goal(self) -> int:
        """Examples that it may take."""
        return EVERYDAY_EXAMPLES if self.everyday else EXAMPLES

    @property
    def met(self) -> bool:
        """Whether it was found, shrunk, and both soon enough."""
        return self.median is not None and self.median <= self.goal and self.seconds <= SECONDS

    @property
    def share(self) -> float:
        """Of all seeds."""
        return sum(each is not None for each in self.examples) / len(self.examples)


def search(mistake: Mistake, draw: str, seeds: int, limit: int) -> Found:
    """Find `mistake` anew with each of `seeds` seeds, then shrink it once."""
    strategy = DRAWS[draw](mistake.ranks)
    found = Found(mistake.name, mistake.everyday, draw, limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.examples = [_first(mistake, strategy, number, limit) for number in range(seeds)]
        first = next((number for number, each in enumerate(found.examples) if each is not None), None)
        if first is not None:
            began = time.perf_counter()
            found.smallest = _smallest(mistake, strategy, first, limit)
            found.seconds = time.perf_counter() - began
    return found


def shows(mistake: Mistake, payloads: list[Any]) -> bool:
    """Whether what arrives is not what was sent."""
    try:
        return not same(payloads, mistake.gather(payloads))
    except Exception:  # a gather that raises has been found out
        return True


class _Stop(Exception):  # noqa: N818 - no error: it is found
    pass


def _settings(limit: int, *phases: Phase) -> settings:
    return settings(
        max_examples=limit,
        phases=phases,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def _first(mistake: Mistake, strategy: st.SearchStrategy[Any], number: int, limit: int) -> int | None:
    drawn = 0
    first: int | None = None

    @seed(number)
    @_settings(limit, Phase.generate)
    @given(strategy)
    def look(payloads: list[Any]) -> None:
        nonlocal drawn, first
        drawn += 1
        if shows(mistake, payloads):
            first = first or drawn  # Hypothesis goes through it once more to tell of it
            raise _Stop

    with suppress(_Stop):
        look()
    return first


def _smallest(mistake: Mistake, strategy: st.SearchStrategy[Any], number: int, limit: int) -> str:
    last: list[Any] = []

    @seed(number)
    @_settings(limit, Phase.generate, Phase.shrink)
    @given(strategy)
    def look(payloads: list[Any]) -> None:
        if shows(mistake, payloads):
            last[:] = payloads
            raise _Stop

    with suppress(_Stop):
        look()
    return as_code(last[0] if mistake.ranks == 1 else last)
