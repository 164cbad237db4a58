"""The plan language: what is printed is read back the same, and what cannot be is refused in one helpful line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.errors import PlanError
from rankdrill.faults import Fault, Plan, What, When, Where, parse_fault
from rankdrill.faults.plan import MAX_FAULTS
from rankdrill.ledger import MAX_FAULTS as LEDGER_FAULTS
from rankdrill.step import Kind, Step
from tests.faults.plans import plans

SKIPPED = "at collective.*, store.append/barrier/multi_set/queue_push/set/wait"


@given(plans())
def test_what_is_printed_is_read_back(plan: Plan) -> None:
    assert Plan.parse(str(plan)) == plan
    assert str(Plan.parse(str(plan))) == str(plan)


@given(plans())
def test_json_is_read_back(plan: Plan) -> None:
    assert Plan.from_json(plan.to_json()) == plan


@given(st.text())
def test_any_text_is_a_plan_or_refused(text: str) -> None:
    try:
        plan = Plan.parse(text)
    except PlanError as error:
        said = str(error)
        assert "\n" not in said
    else:
        assert Plan.parse(str(plan)) == plan


@given(st.text() | st.binary())
def test_any_json_is_a_plan_or_refused(text: str | bytes) -> None:
    with pytest.raises(PlanError):
        Plan.from_json(text)


def test_a_plan_is_read_line_by_line() -> None:
    plan = Plan.parse(
        """
        # what happened on Tuesday
        rank 2: kill before collective.all_reduce #3

        rank 1 : oversize( 65536 ) at object.dumps   # the payload had grown
        rank *: torn after file.rename on "*.part" every
        """
    )
    assert str(plan).splitlines() == [
        "rank 2: kill before collective.all_reduce #3",
        "rank 1: oversize(65536) at object.dumps",
        'rank *: torn after file.rename on "*.part" every',
    ]
    assert tuple(plan) == plan.faults
    assert plan.faults[0] == Fault(Where(2, When.BEFORE, Kind.COLLECTIVE, "all_reduce", nth=3), What("kill"))


def test_defaults_are_filled_in() -> None:
    assert Plan.parse("rank 0: exit before *.*") == Plan.parse("rank 0: exit(1) before *.* #1")


def test_an_empty_plan() -> None:
    assert Plan.parse("") == Plan() == Plan.parse("# nothing\n\n")
    assert not len(Plan())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rank 1: kil before *.*", "'kil' is no strike; did you mean kill?"),
        ("rank -1: kill before *.*", "-1 is no rank; write a number from 0"),
        ("rank two: kill before *.*", "expected `rank N:` or `rank *:`"),
        ("kill before *.*", "a fault reads 'rank 2: kill before"),
        ("rank 1: kill at *.*", "kill strikes `before` or `after` a step, not `at` it"),
        ("rank 1: kill during *.*", "'during' is no place"),
        ("rank 1: kill before", "expected before, after or at"),
        ("rank 1: kill before file", "expected a step, as in file.rename"),
        ("rank 1: kill before fiel.open", "'fiel' is no kind of step; did you mean file?"),
        ("rank 1: kill before file.opne", "file.opne is no step; did you mean open?"),
        ("rank 1: kill before *.open", "write the kind, as in file.open"),
        (
            "rank 1: skip at file.open",
            f"skip has no meaning at file.open; it strikes {SKIPPED}",
        ),
        ("rank 1: torn after file.open", "torn has no meaning after file.open; it strikes before file."),
        ("rank 1: full at object.*", "full has no meaning at object.*"),
        ("rank 1: wrong_root at collective.all_reduce", "wrong_root has no meaning at collective.all_reduce"),
        ("rank 1: delay before *.*", "delay got 0 arguments; write delay(seconds)"),
        ("rank 1: kill(9) before *.*", "kill got 1 argument; write kill, without arguments"),
        ("rank 1: delay(-1) before *.*", "seconds is a number of seconds from 0.0 to 3600.0"),
        ("rank 1: delay(nan) before *.*", "delay(nan): seconds is a number"),
        ("rank 1: delay(inf) before *.*", "delay(inf): seconds is a number"),
        (f"rank 1: delay({'9' * 400}) before *.*", "seconds is a number"),
        (f"rank {'9' * 5000}: kill before *.*", "expected `rank N:`"),
        ("rank 1: delay(soon) before *.*", "'soon' is no number"),
        ("rank 1: oversize(1.5) at object.dumps", "bytes is a whole number of bytes from 1"),
        ("rank 1: exit(256) before *.*", "code is a whole number from 0 to 255"),
        ("rank 1: kill before file.open #0", "#0 is no occurrence; they count from #1"),
        ("rank 1: kill before file.open on part", "expected the end"),
        ('rank 1: kill before file.open on "part', "the pattern is not well quoted"),
        ('rank 1: kill before file.open on ""', "'' is no pattern"),
        ("rank 1: kill before file.open #1 every", "expected the end"),
        ("rank 1: kill before file.open #4294967296", "is no occurrence"),
    ],
)
def test_what_cannot_be_is_refused(line: str, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.parse(f"# first line\n{line}")
    message = str(refused.value)
    assert said in message
    assert message.startswith("line 2 of the plan: ")
    assert repr(line) in message or "fault reads" in message or "is no" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"rank": 0, "strike": "kill", "when": "before", "kind": "file", "ops": "open"}, "'ops'; did you mean op?"),
        ({"rank": 0, "strike": "kill", "when": "before"}, "lacks 'kind'"),
        ({"rank": True, "strike": "kill", "when": "before", "kind": "*"}, "True is no rank"),
        ({"rank": 0, "strike": "kill", "when": "soon", "kind": "*"}, "'soon' is none of before, after, at"),
        ({"rank": 0, "strike": "delay", "args": ["1"], "when": "before", "kind": "*"}, "seconds is a number"),
        ({"rank": 0, "strike": "kill", "args": 1, "when": "before", "kind": "*"}, "wrong type"),
        ({"rank": 0, "strike": "kill", "when": "before", "kind": "file", "pattern": 3}, "3 is no pattern"),
        ({"rank": 0, "strike": "kill", "when": "before", "kind": "file", "op": ["open"]}, "wrong type"),
        ("kill", "is str, not an object"),
    ],
)
def test_json_that_cannot_be_is_refused(fault: object, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.from_json(json.dumps({"version": 1, "faults": [fault]}))
    assert said in str(refused.value)
    assert "fault 0 of the plan" in str(refused.value)


def test_json_of_another_version_is_refused() -> None:
    with pytest.raises(PlanError, match="version 2"):
        Plan.from_json('{"version": 2, "faults": []}')


def test_a_world_is_checked_for_the_ranks_named() -> None:
    plan = Plan.parse("rank 3: kill before *.*\nrank *: delay(1) before *.*")
    plan.check(4)
    with pytest.raises(PlanError, match="names rank 3, but the world has 3 ranks: 0 to 2"):
        plan.check(3)


def test_each_rank_arms_its_own_faults() -> None:
    plan = Plan.parse("rank 0: kill before *.*\nrank *: stop before *.*\nrank 1: abort before *.*")
    assert [index for index, _ in plan.for_rank(0)] == [0, 1]
    assert [index for index, _ in plan.for_rank(1)] == [1, 2]
    assert [index for index, _ in plan.for_rank(7)] == [1]


def test_a_plan_fits_the_ledger() -> None:
    fault = parse_fault("rank 0: kill before *.*")
    assert MAX_FAULTS == LEDGER_FAULTS
    assert len(Plan((fault,) * MAX_FAULTS)) == MAX_FAULTS
    with pytest.raises(PlanError, match="at most 256 faults"):
        Plan((fault,) * (MAX_FAULTS + 1))


@pytest.mark.parametrize(
    ("pattern", "target", "matches"),
    [
        ("*.part", "/a/b/model.part", True),
        ("model.part", "/a/b/model.part", True),  # without a slash: the last part of the path
        ("/a/*", "/a/b/model.part", True),
        ("b/model.part", "/a/b/model.part", False),
        ("*/b/*", "/a/b/model.part", True),
        ("MODEL.*", "/a/b/model.part", False),
        ("default", "default", True),
        ("rank_[0-3].pkl", "/x/rank_2.pkl", True),
    ],
)
def test_patterns(pattern: str, target: str, matches: bool) -> None:
    where = Where(0, When.AT, Kind.FILE, None, pattern)
    assert where.matches(Step(Kind.FILE, "open", target)) is matches


def test_a_rename_matches_by_either_name() -> None:
    where = Where(0, When.AT, Kind.FILE, "rename", "*.pt")
    assert where.matches(Step(Kind.FILE, "rename", "/a/m.part"), "/a/m.pt")
    assert not where.matches(Step(Kind.FILE, "rename", "/a/m.part"), "/a/m")


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        (Where(0, When.AT), True),
        (Where(0, When.AT, Kind.FILE), True),
        (Where(0, When.AT, Kind.FILE, "open"), True),
        (Where(0, When.AT, Kind.SHM), False),
        (Where(0, When.AT, Kind.SHM, "open"), False),
        (Where(0, When.AT, Kind.FILE, "stat"), False),
        (Where(0, When.AT, pattern="[A-Z]*"), False),
        (Where(0, When.AT, pattern="m"), True),
    ],
)
def test_a_step_is_one_of_those_meant_or_is_not(where: Where, matches: bool) -> None:
    assert where.matches(Step(Kind.FILE, "open", "/a/m")) is matches


def test_what_strikes_reads_as_a_call_of_its_numbers() -> None:
    assert [str(What("x", args)) for args in ((), (1,), (1, 2.5))] == ["x", "x(1)", "x(1, 2.5)"]
