"""Programs run as scripts run them: what is right passes; of what fails or hangs, dumps of the flight recorder tell."""

from __future__ import annotations

import pytest
from benchmarks.cataloguing.bare import FLIGHT, GLOO, Bare
from benchmarks.cataloguing.flight_seam import is_there

from tests.catalogue.programs import catalogue
from tests.catalogue.scoring import Judged
from tests.torch_can import Can, needs

PATIENCE_S = 60.0  # for correct programs, on whatever machine
WAITED_S = 3.0  # for a hang
LONGER_S = 25.0  # where ranks had not come to it by then
PROGRAMS = {program.name: program for program in catalogue()}

recorded = pytest.mark.skipif(not is_there(), reason="this torch has no flight recorder for gloo")


@pytest.mark.parametrize("tool", [pytest.param(GLOO, marks=pytest.mark.nightly), pytest.param(FLIGHT, marks=recorded)])
def test_who_destroys_its_groups_itself_passes(tool: str) -> None:
    needs(Can.LET_GROUPS_GO)
    verdict = Bare(tool).verdict_on(PROGRAMS["groups.all_taken_down_at_once"], PATIENCE_S)
    assert not verdict.noticed, verdict.text


def told_by_dumps(name: str) -> Judged:
    """What the flight recorder's dumps tell; of a machine so busy that there were none after a while, after longer."""
    judged = Judged(PROGRAMS[name], Bare(FLIGHT).verdict_on(PROGRAMS[name], WAITED_S))
    if "no files loaded" in judged.verdict.text:
        judged = Judged(PROGRAMS[name], Bare(FLIGHT).verdict_on(PROGRAMS[name], LONGER_S))
    return judged


@recorded
@pytest.mark.parametrize("name", ["ordering.metrics_before_the_loss", "missing.validation_on_some"])
def test_a_hang_is_told_by_the_dumps(name: str) -> None:
    judged = told_by_dumps(name)
    assert judged.wrong_in == (), judged.verdict.text
    assert "0:default_pg" in judged.verdict.text


@recorded
def test_a_rank_that_raises_dumps_too() -> None:
    judged = told_by_dumps("lost.a_key_that_its_batch_has_not")
    assert judged.wrong_in == (), judged.verdict.text
    assert "missing" in judged.verdict.text


def test_plain_gloo_tells_nothing_of_a_hang() -> None:
    verdict = Bare(GLOO).verdict_on(PROGRAMS["missing.validation_on_some"], WAITED_S)
    assert verdict.noticed
    assert not verdict.ranks
