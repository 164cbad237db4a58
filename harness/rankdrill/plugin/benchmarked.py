"""Figures of pytest-benchmark: taken on rank 0, put into the controller's table.

Each rank calibrates for itself how often it calls the function; one that has collectives in it wants the same number of
calls on all ranks, which `benchmark.pedantic(function, rounds=…)` gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["figures_since", "put_in_table"]

_NAMES = ("name", "fullname", "group", "param", "params", "extra_info", "iterations")


def figures_since(config: pytest.Config, before: int) -> tuple[tuple[dict[str, Any], ...], int]:
    """What has been measured here since there were `before` figures, as plain data, and how many there are now."""
    found = getattr(getattr(config, "_benchmarksession", None), "benchmarks", ())
    return tuple(_plain(one) for one in found[before:]), len(found)


def put_in_table(config: pytest.Config, figures: Iterable[dict[str, Any]]) -> None:
    """Add what a rank has measured to the figures that the controller's pytest-benchmark shows and saves."""
    session: Any = getattr(config, "_benchmarksession", None)
    if session is None:
        return
    from pytest_benchmark import stats

    make: Any = stats.Metadata
    for figure in figures:
        told = dict(figure)
        rounds, options = told.pop("rounds"), told.pop("options")
        measured = make(SimpleNamespace(**told, cprofile_stats=None, has_error=False), told["iterations"], options)
        for seconds in rounds:
            measured.stats.update(seconds)
        session.benchmarks.append(measured)


def _plain(measured: Any) -> dict[str, Any]:
    told = {name: getattr(measured, name) for name in _NAMES}
    options = {name: getattr(value, "__name__", value) for name, value in measured.options.items()}
    return {**told, "rounds": list(measured.stats.data), "options": {k: str(v) for k, v in options.items()}}
