"""A line that serves two groups of a two by two mesh: played by ranks that know what the others have come to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from rankdrill.diagnosis import Finding, FindingKind, Wait, cause_of_hang
from rankdrill.diagnosis.calls.turns import another_group_at_a_turn, turn_of
from rankdrill.ledger import Group, LedgerView, State
from rankdrill.step import Kind, Site, Step
from tests.worlds.ended import ledger

GROUPS = {"t01": (0, 1), "t23": (2, 3), "d02": (0, 2), "d13": (1, 3)}
LAYER, LAST = Site("train.py", 7, "forward"), Site("train.py", 9, "train")
Program = Sequence[tuple[str, Site]]  # the dimension, and the line


def group_of(rank: int, dimension: str) -> str:
    return next(name for name, ranks in GROUPS.items() if name[0] == dimension and rank in ranks)


def on(group: str, number: int, site: Site) -> Step:
    return Step(Kind.COLLECTIVE, "all_reduce", group, sequence=number, site=site)


def played(programs: Sequence[Program]) -> tuple[dict[int, Wait], list[LedgerView]]:
    """What ranks wait for at last where each makes its calls, and goes on as its group has come."""
    made: list[list[Step]] = [[] for _ in programs]
    done = [0] * len(programs)
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            if len(made[rank]) == done[rank] < len(program):
                dimension, site = program[done[rank]]
                group = group_of(rank, dimension)
                made[rank].append(on(group, sum(step.target == group for step in made[rank]), site))
                moved = True
            elif len(made[rank]) > done[rank] and not behind(made[rank][-1], made):
                done[rank] += 1
                moved = True
    views, waits = [], {}
    for rank, steps in enumerate(made):
        made_of = [(name, ranks) for name, ranks in GROUPS.items() if rank in ranks]
        groups = tuple(Group(at, 0, name, f"{one},{two}") for at, (name, (one, two)) in enumerate(made_of))
        stuck = len(steps) > done[rank]
        views.append(replace(ledger(*steps, last=State.WAITING if stuck else State.ENDED), groups=groups))
        if stuck:
            waits[rank] = Wait(rank, views[-1].records[-1], tuple(behind(steps[-1], made)))
    return waits, views


def behind(step: Step, made: Sequence[Sequence[Step]]) -> list[int]:
    return [
        rank
        for rank in GROUPS[step.target]
        if not any((each.target, each.sequence) == (step.target, step.sequence) for each in made[rank])
    ]


def layers(dimensions: str) -> Program:
    return [*((dimension, LAYER) for dimension in dimensions), ("d", LAST)]


def found(*dimensions: str) -> Finding | None:
    waits, views = played([layers(each) for each in dimensions])
    assert waits, "somebody hangs"
    return another_group_at_a_turn(waits, views)


@pytest.mark.parametrize("odd", range(4))
def test_who_calls_on_another_group_at_one_turn(odd: int) -> None:
    finding = found(*("tdt" if rank == odd else "ttt" for rank in range(4)))
    assert finding is not None
    assert (finding.kind, finding.culprits) == (FindingKind.GROUP, (odd,))
    assert finding.sides[1].ranks == (odd ^ 1,)
    assert str(finding.sides[0]).endswith("at train.py:7 in forward")


@pytest.mark.parametrize("odd", range(4))
@pytest.mark.parametrize("left_out", range(5))
def test_who_leaves_a_call_out_is_not_taken_for_one(odd: int, left_out: int) -> None:
    whole = "tdtdt"
    finding = found(*(whole[:left_out] + whole[left_out + 1 :] if rank == odd else whole for rank in range(4)))
    assert finding is None or finding.culprits == (odd,)


def test_of_two_that_go_astray_nobody_is_named() -> None:
    assert found("tdt", "ttt", "ttt", "tdt") is None
    assert found("dtt", "tdt", "ttt", "ttt") is None


def with_a_mistake(whole: str) -> Iterator[str]:
    """One call left out, made twice, or made on the other group."""
    for at, each in enumerate(whole):
        other = "t" if each == "d" else "d"
        for instead in ("", each * 2, other):
            yield whole[:at] + instead + whole[at + 1 :]


@pytest.mark.parametrize("odd", [0, pytest.param(3, marks=pytest.mark.nightly)])
def test_whatever_the_mistake_no_innocent_rank_is_blamed(odd: int) -> None:
    told = 0
    for whole in map("".join, product("td", repeat=4)):
        for wrong in with_a_mistake(whole):
            waits, views = played([layers(wrong if rank == odd else whole) for rank in range(4)])
            finding = cause_of_hang(waits, set(range(4)) - waits.keys(), views) if waits else None
            culprits = finding.culprits if finding is not None else ()
            assert culprits in ((), (odd,)), f"{whole} is {wrong} on rank {odd}: {finding}"
            told += bool(culprits)
    assert told > 100


def test_how_often_a_line_was_come_to() -> None:
    helper = Site("train.py", 3, "reduce", caller=LAYER)
    view = ledger(on("t01", 0, LAYER), on("t01", 1, LAST), on("d02", 0, helper))
    assert turn_of(on("d02", 0, helper), view, {LAYER.place}) == 2
    assert turn_of(on("t01", 0, LAYER), view, {LAYER.place}) == 1
    assert turn_of(on("t01", 7, LAYER), view, {LAYER.place}) == 0
