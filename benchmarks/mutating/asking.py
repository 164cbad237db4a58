"""A pytest plugin for the run of each mutant: the fastest tests first, and what Hypothesis finds is not shrunk."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis
import pytest
from hypothesis import Phase, settings

# Derandomized: a survivor of tonight is one of tomorrow.
settings.register_profile(
    "mutants", deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    hypothesis.settings.load_profile("mutants")  # after the project's own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    stats = Path("mutmut-stats.json")
    took = json.loads(stats.read_text())["duration_by_test"] if stats.exists() else {}
    items.sort(key=lambda item: took.get(item.nodeid, 0.0))
