"""A planned fault that did not strike is reported with what the rank did instead."""

from __future__ import annotations

import os
from pathlib import Path

from rankdrill.faults import Plan, unfired
from rankdrill.ledger import LedgerView
from tests.faults.here import rank_here


def steps_of(tmp_path: Path, names: str) -> LedgerView:
    with rank_here() as here:
        for name in names:
            os.mkdir(tmp_path / name)
            os.listdir(tmp_path)
        return here.view


NOTHING = LedgerView((), 0)


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
    (message,) = unfired(Plan.parse("rank 0: kill before *.*"), [[0]], [LedgerView((), 900, dropped=900)])
    assert "more steps than its ledger keeps (900 are lost)" in message


def test_a_fault_for_every_rank_fires_once_somewhere(tmp_path: Path) -> None:
    plan = Plan.parse("rank *: kill before file.mkdir #2\nrank *: stop before file.rename")
    fired = [[0, 0], [1, 0]]
    (message,) = unfired(plan, fired, [NOTHING, steps_of(tmp_path, "a")])
    assert message.startswith("rank *: stop before file.rename did not fire: no rank did; rank 0 took no such step")


def test_all_fired() -> None:
    assert unfired(Plan.parse("rank 0: kill before *.*"), [[3]], [NOTHING]) == []
