"""Which cases a drill runs: derived from where strikes fit, dealt out so that every point and every rank is met."""

from __future__ import annotations

import pytest

from rankdrill.conformance import Case, Drill, Limits
from rankdrill.conformance.caller_faults import CALLER_FAULTS
from rankdrill.conformance.runner import StrikePoints
from rankdrill.conformance.strikes import DEFAULT_STRIKES
from rankdrill.conformance.survey import StrikePoint
from rankdrill.conformance.sweep import Sweep
from rankdrill.errors import PlanError
from rankdrill.faults import STRIKES, Fault, When, parse_fault
from rankdrill.step import Kind
from tests.conformance import broken

ADAPTERS = {"right": broken.RIGHT}
OPS = ("open", "write", "replace", "unlink", "rmdir")


def points(size: int) -> StrikePoints:
    its = tuple(
        StrikePoint("kill", when, Kind.FILE, op, nth)
        for op in OPS
        for nth in (1, 2)
        for when in (When.BEFORE, When.AFTER)
    )
    return (its,) * size


def derived(sweep: Sweep, size: int, payload: str = "small") -> list[Case]:
    drill = sweep.drill(Limits(), 1)
    return list(drill.then(Case("right", size, payload), points(size)))


def test_every_site_is_struck_in_some_world_and_every_rank_in_each() -> None:
    sweep = Sweep.choose(ADAPTERS, (2, 4), ["kill"])
    cases = {size: derived(sweep, size) for size in (2, 4)}
    assert {case.rank for case in cases[2]} == {0, 1}
    assert {case.rank for case in cases[4]} == {0, 1, 2, 3}
    struck = {(fault.where.when, fault.where.op) for size in (2, 4) for fault in map(_fault, cases[size])}
    assert struck == {(when, op) for when in (When.BEFORE, When.AFTER) for op in OPS}


@pytest.mark.parametrize("strike", DEFAULT_STRIKES)
@pytest.mark.parametrize("size", [2, 4])
def test_every_strike_meets_every_rank_of_every_world(strike: str, size: int) -> None:
    drill = Sweep.choose(ADAPTERS, (2, 4), [strike]).drill(Limits(), 1)
    its = tuple(
        StrikePoint(strike, when, kind, min(ops), 1)
        for when, steps in STRIKES[strike].on.items()
        for kind, ops in steps.items()
        if ops
    )
    cases = [case for payload in ("small", "8mib") for case in drill.then(Case("right", size, payload), (its,) * size)]
    assert {case.rank for case in cases if case.size == size} == set(range(size))


def test_a_thorough_sweep_strikes_every_step_of_every_rank() -> None:
    cases = derived(Sweep.choose(ADAPTERS, (4,), ["kill"], thorough=True), 4)
    assert len(cases) == len(set(cases)) == 4 * len(points(1)[0])


def test_a_strike_that_fits_nowhere_does_not_apply() -> None:
    assert derived(Sweep.choose(ADAPTERS, (2,), ["oversize"]), 2) == []


def test_faults_meet_the_small_payload_unless_others_are_asked_for() -> None:
    assert derived(Sweep.choose(ADAPTERS, (2,), ["kill"]), 2, "views") == []
    assert derived(Sweep.choose(ADAPTERS, (2,), ["kill"], payloads=["views"]), 2, "views") != []


def test_every_line_of_a_derived_case_parses_to_itself() -> None:
    for case in derived(Sweep.choose(ADAPTERS, (2,), ()), 2):
        assert str(_fault(case)) == case.fault


def test_missteps_need_somebody_to_notice() -> None:
    def caller_faults(size: int) -> set[tuple[str, int]]:
        cases = Sweep.choose(ADAPTERS, (size,), list(CALLER_FAULTS)).drill(Limits(), 1).cases
        return {(case.strike, case.rank) for case in cases if case.strike in CALLER_FAULTS}

    assert caller_faults(1) == set()
    assert caller_faults(3) == {(name, rank) for name in CALLER_FAULTS for rank in range(3)}


def test_a_line_is_run_as_it_is_and_only_where_it_has_a_rank() -> None:
    line = "rank 3: kill before file.*"
    cases = Sweep.choose(ADAPTERS, (2, 4), [line]).drill(Limits(), 1).cases
    assert [(case.size, case.fault) for case in cases] == [(4, line)]
    with pytest.raises(PlanError, match="names rank 3, but the world has 2 ranks"):
        Sweep.choose(ADAPTERS, (2,), [line])


def test_a_survey_asks_every_strike_at_every_step() -> None:
    found: list[StrikePoints] = []

    def keep(case: Case, its: StrikePoints) -> list[Case]:
        found.append(its)
        return []

    (result,) = Drill(ADAPTERS, [Case("right", 2, "small")], keep, jobs=1).results()
    assert result.passed
    by_strike = {point.strike for point in found[0][1]}
    assert {"kill", "oom", "unpicklable", "fails_to_load", "skip"} <= by_strike <= set(STRIKES)
    assert "missing" not in by_strike  # it touches no file


def test_a_gather_without_call_numbers_gives_a_skipped_call_away() -> None:
    case = Case("right", 2, "small", "skipped_call", "rank 1: skipped_call", 1)
    (result,) = Drill(ADAPTERS, [case], jobs=1).results()
    assert result.judgement == "silently wrong"
    assert result.why == "rank 0: result[1]['turn'] is 2, not 1; rank 1: result[0]['turn'] is 1, not 2"


def _fault(case: Case) -> Fault:
    return parse_fault(case.fault)
