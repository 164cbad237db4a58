"""Worlds of real ranks, kept from one test to the next while their ranks behave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rankdrill import Outcome, Plan, World

DEADLINE_S = 60.0

Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def worlds() -> Iterator[dict[int, World]]:
    """Worlds by size."""
    kept: dict[int, World] = {}
    yield kept
    for world in kept.values():
        world.discard()


@pytest.fixture
def run(worlds: dict[int, World]) -> Run:
    """Runs a body on `ranks` real ranks under a plan."""

    def run_it(ranks: int, plan: str, body: Callable[..., Any], *args: Any, deadline: float = DEADLINE_S) -> Outcome:
        world = worlds.setdefault(ranks, World(ranks))
        outcome = world.run(body, *args, plan=Plan.parse(plan), deadline=deadline)
        assert not outcome.unfired
        return outcome

    return run_it
