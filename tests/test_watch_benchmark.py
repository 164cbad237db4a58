"""benchmarks/watch.py runs and tells each way beside bare gloo, and its ways are what they are called."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from benchmarks.watch import AGAIN, BARE, CONTRACTS, LEDGER, Taken, over_bare, taken

from rankdrill import World
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "watch.py"
QUICKLY = ("--ranks", "2", "--rounds", "2", "--between", "0", "--calls", "all_reduce", "--of", "1 element")
PATIENCE_S = 300
TOLD = (BARE, LEDGER, CONTRACTS, AGAIN)


class Told(NamedTuple):
    """What it printed, and the figures that it wrote."""

    screen: str
    figures: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    file = tmp_path_factory.mktemp("watch") / "figures.json"
    command = [sys.executable, str(SCRIPT), *QUICKLY, "--without-detail", "--json", str(file)]
    environ = {**os.environ, "COLUMNS": "200"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environ)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(file.read_text())
    return Told(ran.stdout, {figure["way"]: figure for figure in figures})


@pytest.fixture(scope="module")
def two() -> Iterator[World]:
    with World(2) as world:
        yield world


def test_every_way_is_printed_with_what_it_adds_to_bare_gloo(told: Told) -> None:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in told.screen.splitlines() if "│" in line]
    assert [row[4] for row in rows] == list(TOLD)
    assert list(told.figures) == list(TOLD)
    for ranks, call, tensor, _, way, us, over, within, cpu_us in rows:
        figure = told.figures[way]
        assert (ranks, call, tensor) == ("2", "all_reduce", "1 element")
        assert us == f"{figure['us']:.1f}"
        assert over == f"{figure['over_bare']:+.1%}"
        assert within == f"{figure['at_least']:+.1%} to {figure['at_most']:+.1%}"
        assert cpu_us == f"{figure['cpu_us']:.1f}"
    assert re.search(r"watched in (C|Python)", told.screen)


def test_figures_are_of_calls_that_were_made(told: Told) -> None:
    assert all(figure["us"] > 0 and figure["cpu_us"] > 0 for figure in told.figures.values())
    assert all(figure["at_least"] <= figure["over_bare"] <= figure["at_most"] for figure in told.figures.values())
    assert told.figures[BARE]["over_bare"] == 0
    assert all(told.figures[way]["over_bare"] != 0 for way in TOLD if way != BARE)


def what_is_watched(context: RankContext) -> dict[str, tuple[bool, bool, bool]]:
    """By way: whether calls go through the ledger, and whether contracts and handles are watched."""
    found = {}
    for way in TOLD:
        with taken(way, context, None) as group:
            boundary = context.boundary
            found[way] = (group is context.group, boundary.watch is not None, boundary.handles is not None)
    return found


def test_the_ways_are_what_they_are_called(two: World) -> None:
    for found in two.run_job(Job(what_is_watched, with_context=True), deadline=PATIENCE_S).unwrap():
        assert found == {
            BARE: (False, False, False),
            LEDGER: (True, False, False),
            CONTRACTS: (True, True, True),
            AGAIN: (False, False, False),
        }


def test_a_round_is_compared_with_bare_gloo_in_that_round() -> None:
    bare = [[Taken(seconds, 0)] * 3 for seconds in (1.0, 2.0, 4.0, 8.0, 100.0)]
    watched = [[Taken(2 * calls[0].seconds, 0)] * 2 + [Taken(999, 0)] for calls in bare]
    assert over_bare({BARE: bare, LEDGER: watched}, LEDGER) == (1.0, 1.0, 1.0)
    watched[4] = [Taken(150.0, 0)]  # a busy machine has one round less, and that is all
    assert over_bare({BARE: bare, LEDGER: watched}, LEDGER) == (1.0, 0.5, 1.0)
