"""The benchmark of planted mistakes: what it plants, what it finds, what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import finding
from benchmarks.planting.mistake import KEEP, MISTAKES, Mistake, copied, rebuilt
from benchmarks.planting.search import OURS, search, shows
from click.testing import CliRunner

from rankdrill_strategies import same

SOON = ("text as latin-1", "bool becomes int", "set becomes list", "ranks without a payload left out")


def test_enough_is_planted() -> None:
    assert sum(mistake.everyday for mistake in MISTAKES.values()) >= 15
    assert len(MISTAKES) >= 25


@pytest.mark.parametrize("payload", [1, "a", [1, 2], {"a": [1.5]}, (1, [2]), b"a"], ids=repr)
def test_a_gather_is_right_but_for_its_mistake(payload: Any) -> None:
    right = Mistake("none", everyday=True, gather=copied, ranks=1)
    assert not shows(right, [payload])
    assert same(payload, rebuilt(payload, lambda part: KEEP))
    wrong = [mistake.name for mistake in MISTAKES.values() if mistake.ranks == 1 and shows(mistake, [payload])]
    assert wrong == (["tuple becomes list", "json where json will do"] if type(payload) is tuple else [])


@pytest.mark.parametrize("name", SOON)
def test_mistakes_of_every_day_are_found_soon(name: str) -> None:
    found = search(MISTAKES[name], OURS, seeds=3, limit=200)
    assert found.share == 1
    assert found.median is not None
    assert found.median <= 30
    assert found.met
    assert len(found.smallest) < 60


def test_it_says_what_it_found(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    arguments = ["--only", "bool becomes int", "--seeds", "2", "--limit", "50", "--json", str(file), "--check"]
    outcome = CliRunner().invoke(finding.main, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert "bool becomes int *" in outcome.stdout
    assert "1 of 1 everyday mistakes (*) found in at most 30 examples" in outcome.stdout
    (ours, basic) = json.loads(file.read_text())["found"]
    assert (ours["draw"], basic["draw"]) == ("picklables", "st.recursive")
    assert ours["smallest"] == "False"
    assert len(ours["examples"]) == 2


@pytest.mark.nightly
def test_on_ranks_it_says_what_a_user_would_be_shown(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    arguments = ["--on-ranks", "--only", "set becomes list", "--seeds", "1", "--limit", "100", "--json", str(file)]
    outcome = CliRunner().invoke(finding.main, arguments)
    assert outcome.exit_code == 0, outcome.output
    (found,) = json.loads(file.read_text())["found"]
    assert found["draw"] == "on 2 ranks"
    assert found["examples"][0] in range(1, 101)
    assert found["smallest"] == "[None, {0}]"
    assert found["seconds"] > 0


def test_on_ranks_there_is_one_draw() -> None:
    outcome = CliRunner().invoke(finding.main, ["--on-ranks", "--draw", "picklables"])
    assert outcome.exit_code == 2
    assert "leave --draw out" in outcome.output


def test_a_name_of_no_mistake_is_refused() -> None:
    outcome = CliRunner().invoke(finding.main, ["--only", "nonesuch"])
    assert outcome.exit_code == 2
    assert "'nonesuch' is in the name of no mistake; --help lists them" in outcome.output
