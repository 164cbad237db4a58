"""The benchmark of how fast, how big and how healthily payloads are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import drawing
from benchmarks.drawing import BIG, OURS, RATE, STRATEGIES, TAIL, Drawn
from click.testing import CliRunner
from hypothesis import strategies as st


@pytest.mark.nightly
def test_it_measures_every_strategy(tmp_path: Path) -> None:
    file = tmp_path / "drawn.json"
    outcome = CliRunner().invoke(
        drawing.main, ["--examples", "10", "--rounds", "1", "--seeds", "1", "--json", str(file)]
    )
    assert outcome.exit_code == 0, outcome.output
    drawn = json.loads(file.read_text())["drawn"]
    assert [each["strategy"] for each in drawn] == list(STRATEGIES)
    assert all(each["rate"] > 0 and 0 < each["median"] <= each["most"] for each in drawn)


def test_what_hypothesis_finds_unhealthy_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "STRATEGIES", {OURS: lambda: st.integers().filter(lambda drawn: drawn % 99 == 7)})
    outcome = CliRunner().invoke(drawing.main, ["--examples", "10", "--rounds", "1", "--seeds", "2", "--check"])
    assert outcome.exit_code == 1
    assert outcome.output.count(f"missed by {OURS}: It looks like") == 2


@pytest.mark.parametrize(
    ("drawn", "missed"),
    [
        (Drawn(OURS, [RATE - 1.0], 10, 20, 30, 40, []), [f"{OURS}: {RATE - 1} examples a second, of {RATE}"]),
        (Drawn(OURS, [RATE + 1.0, 1.0, RATE + 2.0], 10, 20, 30, 40, []), []),
        (
            Drawn(BIG, [1.0], 10, 20, TAIL - 1, TAIL, []),
            [f"{BIG}: 99.9 % of {TAIL - 1} bytes and less, of {TAIL}"],
        ),
        (Drawn(BIG, [1.0], 10, 20, TAIL, TAIL, []), []),
    ],
)
def test_each_goal_has_its_strategy(drawn: Drawn, missed: list[str]) -> None:
    assert list(drawn.missed()) == missed
