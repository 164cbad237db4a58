"""What the day's suite runs of many cases that are alike: the others run at night."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pytest

__all__ = ["covering", "the_rest_at_night", "thinned"]


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """`cases` of one parameter, or of several as tuples: from the first on each `every`-th for the day, and the others
    for the night.
    """
    return [case if place % every == 0 else _late(case) for place, case in enumerate(cases)]


def _late(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)


def covering(cases: Sequence[Sequence[Hashable]]) -> list[int]:
    """Of a product of parameters the places of `cases`, each a value for each, that have every value at least once.

    They are few, and the same ones every time.
    """
    without = [set(enumerate(case)) for case in cases]
    kept = []
    while any(without):
        # Of those that bring equally much the first.
        best = max(range(len(cases)), key=lambda place: len(without[place]))
        kept.append(best)
        seen = set(without[best])
        for values in without:
            values -= seen
    return sorted(kept)


def the_rest_at_night(items: Iterable[pytest.Item]) -> None:
    """Mark all cases of each test with several parameters `nightly`, but for those that cover their values."""
    products: dict[str, list[tuple[pytest.Item, list[Hashable]]]] = {}
    for item in items:
        case = _values_of(item)
        if len(case) > 1 and item.get_closest_marker("nightly") is None:
            products.setdefault(item.nodeid.partition("[")[0], []).append((item, case))
    for cases in products.values():
        kept = covering([case for _, case in cases])
        for place, (item, _) in enumerate(cases):
            if place not in kept:
                item.add_marker("nightly")


def _values_of(item: pytest.Item) -> list[Hashable]:
    """What each of its parameters has here; names that are parametrized in one go are one parameter."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    at_once = [mark.args[0] for mark in item.iter_markers("parametrize")]
    axes = [each.replace(" ", "").split(",") if isinstance(each, str) else list(each) for each in at_once]
    axes += [[name] for name in params if not any(name in axis for axis in axes)]
    # Each value is one object for all cases, whether it can be compared or not.
    return [tuple(id(params[name]) for name in axis) for axis in axes]
