"""A planned fault that did not strike is reported with what the rank did instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankdrill.faults import Plan, unfired
from rankdrill.faults.firing import MAX_LISTED
from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter
from rankdrill.step import Kind, Step
from tests.faults.here import rank_here


def walk_of(tmp_path: Path, *ops: str) -> LedgerView:
    """The steps `ops`, each done at one directory."""
    path = tmp_path / "walked"
    with rank_here() as here:
        for op in ops:
            getattr(os, op)(path)
        return here.view


def steps_of(tmp_path: Path, names: str) -> LedgerView:
    with rank_here() as here:
        for name in names:
            os.mkdir(tmp_path / name)
            os.listdir(tmp_path)
        return here.view


NOTHING = LedgerView()


def test_too_few_steps(tmp_path: Path) -> None:
    plan = Plan.parse("rank 1: kill before file.mkdir #3")
    (message,) = unfired(plan, [[0], [0]], [NOTHING, steps_of(tmp_path, "ab")])
    assert message == (
        "rank 1: kill before file.mkdir #3 did not fire: rank 1 took only 2 such steps; "
        "the steps rank 1 did take: file.mkdir, file.listdir, file.mkdir, file.listdir"
    )


def test_no_such_step_and_many_others(tmp_path: Path) -> None:
    plan = Plan.parse("rank 0: kill before collective.all_reduce")
    (message,) = unfired(plan, [[0]], [steps_of(tmp_path, "abcdefghij")])
    assert "rank 0 took no such step; rank 0 took 20 steps: file.mkdir x10, file.listdir x10" in message


def test_steps_at_which_it_could_change_nothing(tmp_path: Path) -> None:
    plan = Plan.parse('rank 0: collision before file.mkdir on "a"')
    (message,) = unfired(plan, [[0]], [steps_of(tmp_path, "a")])
    assert "rank 0 took 1 such step, at none of which collision could change anything" in message
    plan = Plan.parse("rank 0: collision before file.mkdir #3")
    (message,) = unfired(plan, [[0]], [steps_of(tmp_path, "bcde")])
    assert "rank 0 took 4 such steps, at fewer than 3 of which collision could change anything" in message


def test_no_step_at_all() -> None:
    (message,) = unfired(Plan.parse("rank 1: kill before *.*"), [[0], []], [NOTHING])
    assert "rank 1 took no such step; rank 1 took no step at all" in message


def test_steps_that_the_ledger_lost() -> None:
    (message,) = unfired(Plan.parse("rank 0: kill before *.*"), [[0]], [LedgerView(first=900, dropped=900)])
    assert "more steps than its ledger keeps (900 are lost)" in message


def test_a_fault_for_every_rank_fires_once_somewhere(tmp_path: Path) -> None:
    plan = Plan.parse("rank *: kill before file.mkdir #2\nrank *: stop before file.rename")
    fired = [[0, 0], [1, 0]]
    (message,) = unfired(plan, fired, [NOTHING, steps_of(tmp_path, "a")])
    assert message.startswith("rank *: stop before file.rename did not fire: no rank did; rank 0 took no such step")


def test_of_two_faults_the_one_that_did_not_strike_is_told() -> None:
    plan = Plan.parse("rank 0: kill before *.*\nrank 0: stop before *.*")
    for fired, missed in (([0, 1], "kill"), ([1, 0], "stop")):
        (message,) = unfired(plan, [fired], [NOTHING])
        assert message.startswith(f"rank 0: {missed} before")
    (message,) = unfired(Plan.parse("rank 1: kill before *.*"), [[1]], [NOTHING])
    assert message.startswith("rank 1: kill before *.* did not fire")


def test_all_fired() -> None:
    assert unfired(Plan.parse("rank 0: kill before *.*"), [[3]], [NOTHING]) == []


def test_one_step_too_few(tmp_path: Path) -> None:
    (message,) = unfired(Plan.parse("rank 0: kill before file.mkdir #2"), [[0]], [walk_of(tmp_path, "mkdir")])
    assert message == (
        "rank 0: kill before file.mkdir #2 did not fire: rank 0 took only 1 such step; "
        "the steps rank 0 did take: file.mkdir"
    )


def test_two_steps_at_which_it_could_change_nothing(tmp_path: Path) -> None:
    view = walk_of(tmp_path, "mkdir", "rmdir", "mkdir")
    (message,) = unfired(Plan.parse("rank 0: collision before file.mkdir"), [[0]], [view])
    assert message == (
        "rank 0: collision before file.mkdir did not fire: "
        "rank 0 took 2 such steps, at none of which collision could change anything; "
        "the steps rank 0 did take: file.mkdir, file.rmdir, file.mkdir"
    )


def test_equal_steps_in_a_row_are_told_once(tmp_path: Path) -> None:
    view = walk_of(tmp_path, "mkdir", "stat", "stat", "lstat", "lstat", "lstat", "rmdir")
    (message,) = unfired(Plan.parse("rank 0: kill before shm.create"), [[0]], [view])
    assert message.endswith("; the steps rank 0 did take: file.mkdir, file.stat x2, file.lstat x3, file.rmdir")


def test_as_many_different_steps_as_fit_are_told_in_their_order(tmp_path: Path) -> None:
    view = walk_of(tmp_path, "mkdir", *["stat", "lstat"] * 3, "rmdir")
    assert MAX_LISTED == 8
    (message,) = unfired(Plan.parse("rank 0: kill before shm.create"), [[0]], [view])
    assert message.endswith(
        "; the steps rank 0 did take: file.mkdir, file.stat, file.lstat, file.stat, file.lstat, file.stat, "
        "file.lstat, file.rmdir"
    )
    view = walk_of(tmp_path, "mkdir", *["stat", "lstat"] * 3, "stat", "rmdir")
    (message,) = unfired(Plan.parse("rank 0: kill before shm.create"), [[0]], [view])
    assert message.endswith("; rank 0 took 9 steps: file.stat x4, file.lstat x3, file.mkdir, file.rmdir")


@pytest.mark.parametrize(
    ("more", "told"), [(0, ""), (1, " and 1 other op"), (2, " and 2 other ops"), (3, " and 3 other ops")]
)
def test_ops_that_do_not_fit_are_counted(more: int, told: str, tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=1) as ledger:
        for op in [f"op{number}" for number in range(MAX_LISTED + more)] * 2:
            ledger.begin(Step(Kind.FILE, op))
    view = LedgerReader(tmp_path / "ledger").view()
    (message,) = unfired(Plan.parse("rank 0: kill before shm.create"), [[0]], [view])
    first = ", ".join(f"file.op{number} x2" for number in range(MAX_LISTED))
    assert message.endswith(f"rank 0 took {2 * (MAX_LISTED + more)} steps: {first}{told}")


def test_a_rename_is_found_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with rank_here() as here:
        os.rename(tmp_path / "a", tmp_path / "b")
        os.close(os.open(tmp_path, os.O_RDONLY))
        view = here.view
    for pattern, told in {"b": "took 1 such step", "a": "took 1 such step", "to b": "took no such step"}.items():
        (message,) = unfired(Plan.parse(f'rank 0: torn after file.rename on "{pattern}"'), [[0]], [view])
        assert told in message
    (message,) = unfired(Plan.parse('rank 0: io_error at file.* on "[A-Z]*"'), [[0]], [view])
    assert "took no such step" in message


def test_a_fault_for_every_rank_is_told_of_the_first_that_came_closest(tmp_path: Path) -> None:
    ledgers = [NOTHING, walk_of(tmp_path, "mkdir", "rmdir"), walk_of(tmp_path, "mkdir", "rmdir")]
    plan = Plan.parse("rank *: kill before file.mkdir #2")
    (message,) = unfired(plan, [[0]] * 3, ledgers)
    assert message == (
        "rank *: kill before file.mkdir #2 did not fire: no rank did; rank 1 took only 1 such step; "
        "the steps rank 1 did take: file.mkdir, file.rmdir"
    )


def test_a_world_of_which_nothing_is_known() -> None:
    (message,) = unfired(Plan.parse("rank *: kill before *.*"), [], [])
    told = "did not fire: no rank did; rank 0 took no such step; rank 0 took no step at all"
    assert message == f"rank *: kill before *.* {told}"
    (message,) = unfired(Plan.parse("rank 5: kill before *.*"), [[0]], [NOTHING])
    assert message == "rank 5: kill before *.* did not fire: rank 5 took no such step; rank 5 took no step at all"
