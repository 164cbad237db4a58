"""Plans of every strike, valid as they are drawn, that shrink to the least."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from rankdrill.errors import UsageError
from rankdrill.faults import STRIKES, Plan, When
from rankdrill.step import Kind
from rankdrill_strategies import plans, worlds

quickly = settings(max_examples=3000, database=None, deadline=None, derandomize=True)
some = settings(max_examples=200, database=None, deadline=None, derandomize=True, phases=[Phase.generate])
many = settings(some, max_examples=4000)  # what is drawn first is another in each version of Hypothesis


def _all(strategy: st.SearchStrategy[Plan], is_enough: Callable[[list[Plan]], bool] | None = None) -> list[Plan]:
    """Some plans, or as many as it takes until they are enough."""
    found: list[Plan] = []

    def keep(drawn: Plan) -> None:
        found.append(drawn)
        if is_enough is not None and is_enough(found):
            raise _EnoughError

    with suppress(_EnoughError):
        (some if is_enough is None else many)(given(strategy)(keep))()
    return found


class _EnoughError(Exception):
    """Ends a search that has found everything."""


@pytest.fixture(scope="module")
def drawn() -> list[Plan]:
    def has_all_kinds(found: list[Plan]) -> bool:
        return len(found) >= 200 and {fault.where.kind for plan in found for fault in plan} == set(Kind)

    return _all(plans(3, patterns=["*.part"], wide=True, max_faults=5), has_all_kinds)


@pytest.mark.parametrize("strike", STRIKES)
def test_every_strike_is_drawn(strike: str, drawn: list[Plan]) -> None:
    assert any(fault.what.name == strike for plan in drawn for fault in plan)


@pytest.mark.parametrize("strike", STRIKES)
def test_every_place_where_a_strike_makes_sense_is_drawn(strike: str) -> None:
    wanted = {(when, kind) for when, steps in STRIKES[strike].on.items() for kind, ops in steps.items() if ops}

    def places(plans: list[Plan]) -> set[tuple[When, Kind | None]]:
        return {(fault.where.when, fault.where.kind) for plan in plans for fault in plan}

    drawn = _all(
        plans(1, strikes=[strike], min_faults=4, max_faults=4, max_nth=9), lambda found: places(found) == wanted
    )
    assert places(drawn) == wanted


def test_every_part_of_a_place_is_drawn(drawn: list[Plan]) -> None:
    wheres = [fault.where for plan in drawn for fault in plan]
    assert {where.rank for where in wheres} == {0, 1, 2, None}
    assert {where.nth for where in wheres} == {1, 2, 3, None}
    assert {where.pattern for where in wheres} == {None, "*.part"}
    assert {where.when for where in wheres} == set(When)
    assert {where.kind for where in wheres} == set(Kind)
    assert any(where.op is None for where in wheres)
    assert {len(plan) for plan in drawn} == set(range(6))


def test_narrow_plans_name_rank_op_and_occurrence() -> None:
    for plan in _all(plans(2)):
        for fault in plan:
            assert fault.where.rank in (0, 1)
            assert fault.where.op is not None
            assert fault.where.nth in (1, 2, 3)


@settings(max_examples=100, deadline=None)
@given(st.data(), worlds(max_ranks=9))
def test_they_are_valid_and_survive_being_printed(data: st.DataObject, world_size: int) -> None:
    plan = data.draw(plans(world_size, wide=True, patterns=["a*", "/tmp/?"]))
    plan.check(world_size)
    assert Plan.parse(str(plan)) == plan
    assert Plan.from_json(plan.to_json()) == plan


def test_no_two_faults_of_a_plan_are_equal() -> None:
    for plan in _all(plans(1, strikes=["skip"], steps=["collective.barrier"], max_nth=2, max_faults=5)):
        assert len(set(plan.faults)) == len(plan) <= 2


def test_arguments_stay_within_what_was_asked() -> None:
    drawn = _all(plans(1, strikes=["delay", "oversize", "exit", "wrong_shape"], max_seconds=0.01, max_bytes=7))
    values: dict[str, set[Any]] = {}
    for plan in drawn:
        for fault in plan:
            values.setdefault(fault.what.name, set()).update(fault.what.args)
    assert min(values["delay"]) == 0
    assert max(values["delay"]) == 0.01
    assert values["oversize"] == set(range(1, 8))
    assert max(values["exit"]) <= 255
    assert min(values["wrong_shape"]) >= 1


@pytest.mark.nightly
def test_only_what_was_asked_is_drawn() -> None:
    for plan in _all(plans(2, strikes=["kill", "delay"], kinds=["file", Kind.OBJECT])):
        for fault in plan:
            assert fault.what.name in ("kill", "delay")
            assert fault.where.kind in (Kind.FILE, Kind.OBJECT)
    steps = {fault.where.step for plan in _all(plans(2, steps=["file.rename", "object.dumps"])) for fault in plan}
    assert steps == {"file.rename", "object.dumps"}


def test_a_strike_that_makes_no_sense_at_the_kinds_is_left_out() -> None:
    names = {fault.what.name for plan in _all(plans(1, strikes=["skip", "kill"], kinds=["file"])) for fault in plan}
    assert names == {"kill"}


def test_they_shrink_to_no_fault() -> None:
    assert find(plans(4), lambda plan: True, settings=quickly) == Plan()


def test_a_fault_shrinks_to_the_first_step_of_rank_0() -> None:
    smallest = find(plans(4, wide=True, patterns=["x"]), lambda plan: len(plan) > 0, settings=quickly)
    assert str(smallest) == "rank 0: skip at collective.all_gather"
    killed = find(plans(4), lambda plan: any(fault.what.name == "kill" for fault in plan), settings=quickly)
    assert str(killed) == "rank 0: kill before collective.all_gather"
    late = find(
        plans(4, strikes=["delay"]),
        lambda plan: any(fault.where.rank == 3 and fault.where.nth == 2 for fault in plan),
        settings=quickly,
    )
    assert str(late) == "rank 3: delay(0) before collective.all_gather #2"


@pytest.mark.nightly
def test_the_fewest_faults_may_be_given() -> None:
    assert {len(plan) for plan in _all(plans(2, min_faults=2, max_faults=3))} == {2, 3}
    assert find(plans(2, min_faults=1), lambda plan: True, settings=quickly).faults


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"world_size": 0}, "world_size=0 is out of range; give at least 1"),
        ({"strikes": ["kil"]}, r"strikes=\['kil'\]: 'kil' is no strike; choose from skip, "),
        ({"strikes": "kill"}, r"strikes='kill' is one string; give a list, as in \['kill'\]"),
        ({"strikes": []}, r"strikes=\[\] leaves nothing to draw; name one, or leave it out for all"),
        ({"kinds": ["disk"]}, r"kinds=\['disk'\]: 'disk' is no kind of step; choose from collective, file"),
        ({"steps": ["all_reduce"]}, "'all_reduce' is no step; write kind and op, as in collective.all_reduce"),
        (
            {"strikes": ["skip"], "kinds": ["file"]},
            r"no strike asked for makes sense at \[<Kind.FILE.*skip strikes at collective",
        ),
        ({"strikes": ["full"], "steps": ["file.stat"]}, r"makes sense at \['file.stat'\]; full strikes at "),
        ({"min_faults": -1}, "min_faults=-1 is out of range; give at least 0 and at most 256"),
        ({"max_faults": 257}, "max_faults=257 is out of range"),
        ({"min_faults": 3}, "min_faults=3 is above max_faults=2"),
        ({"max_nth": 0}, "max_nth=0 is out of range"),
        ({"max_seconds": -1}, "max_seconds=-1 is no time; give seconds from 0"),
        ({"max_seconds": float("nan")}, "max_seconds=nan is no time"),
        ({"max_bytes": 0}, "max_bytes=0 is out of range"),
        ({"patterns": "*.part"}, r"patterns='\*.part' is one string"),
        ({"patterns": [""]}, "'' is no pattern; write a glob"),
        ({"wide": 1}, "wide=1 is no switch"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plans(**{"world_size": 2, **arguments})
