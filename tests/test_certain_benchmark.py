"""benchmarks/certain.py runs worlds that hang, and says how long after that was certain they were over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.certain import DEADLINE_S, main
from benchmarks.hanging.bodies import BODIES
from click.testing import CliRunner

TOLD = {
    "leaves a call out": "missing call",
    "makes another call": "call ordering",
    "takes two groups in another order": "call ordering",
    "never sends": "unmatched message",
    "all receive first": "deadlock",
    "never sets a key": "missing key",
    "leaves a call out while another computes": "missing call",
    "never sends while another computes": "unmatched message",
}


@pytest.mark.parametrize("name", BODIES)
def test_each_hang_is_told_as_what_it_is_long_before_the_deadline(name: str, tmp_path: Path) -> None:
    written = tmp_path / "certain.json"
    ran = CliRunner().invoke(main, ["--only", name, "--ranks", "4", "--rounds", "1", "--json", str(written)])
    assert ran.exit_code == 0, ran.output
    found = {each["hang"]: each for each in json.loads(written.read_text())["rounds"]}
    assert (found[name]["ranks"], found[name]["told"]) == (4, TOLD[name])
    (took_ms,) = found[name]["took_ms"]
    assert 0 < took_ms < DEADLINE_S * 1000 / 3
    assert f" {took_ms:.0f} " in ran.output


def test_one_that_takes_longer_than_it_may_ends_it_with_1() -> None:
    ran = CliRunner().invoke(main, ["--only", "never sends", "--ranks", "2", "--rounds", "1", "--at-most", "0"])
    assert ran.exit_code == 1


def test_a_hang_that_is_not_there_is_refused() -> None:
    ran = CliRunner().invoke(main, ["--only", "lunch"])
    assert (ran.exit_code, "lunch is in the name of no hang; --help lists them" in ran.output) == (2, True)
