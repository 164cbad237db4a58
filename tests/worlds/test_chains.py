"""Groups of neighbours, each rank waiting in its own for the next: who let the first one down, not who passed it on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind

DEADLINE_S = 60.0


def links() -> list[dist.ProcessGroup]:
    """A group of each rank and the next."""
    return [dist.new_group([*pair]) for pair in pairwise(range(dist.get_world_size()))]


def reduce_on(group: dist.ProcessGroup) -> None:
    dist.all_reduce(torch.ones(1), group=group)


def the_last_returns() -> None:
    groups, me, last = links(), dist.get_rank(), dist.get_world_size() - 1
    if me == last:
        return
    dist.all_reduce(torch.ones(1), group=groups[me])
    if me > 0:
        dist.all_reduce(torch.ones(1), group=groups[me - 1])


def the_first_returns() -> None:
    groups, me, last = links(), dist.get_rank(), dist.get_world_size() - 1
    if me == 0:
        return
    dist.all_reduce(torch.ones(1), group=groups[me - 1])
    if me < last:
        dist.all_reduce(torch.ones(1), group=groups[me])


def the_last_returns_in_the_third_round() -> None:
    groups, me, last = links(), dist.get_rank(), dist.get_world_size() - 1
    for step in range(3):
        if me == last and step == 2:
            return
        if me < last:
            dist.all_reduce(torch.ones(1), group=groups[me])
        if me > 0:
            dist.all_reduce(torch.ones(1), group=groups[me - 1])  # odd


def one_in_the_middle_goes_past_it_once() -> None:
    groups, me, last = links(), dist.get_rank(), dist.get_world_size() - 1
    for step in range(3):
        if me < last:
            dist.all_reduce(torch.ones(1), group=groups[me])
        if me > 0 and not (me == 2 and step == 1):
            dist.all_reduce(torch.ones(1), group=groups[me - 1])  # odd


def only(findings: tuple[Finding, ...]) -> Finding:
    (finding,) = findings
    return finding


def odd_line(body: Callable[[], None]) -> int:
    lines, first = inspect.getsourcelines(body)
    return first + next(number for number, line in enumerate(lines) if "# odd" in line)


@pytest.mark.parametrize("body", [the_last_returns, the_last_returns_in_the_third_round])
@pytest.mark.parametrize("ranks", [3, 4])
def test_the_last_left_all_alone(ranks: int, body: Callable[[], None]) -> None:
    with World(ranks) as world:
        outcome = world.run(body, deadline=DEADLINE_S)
    assert (outcome.culprits, outcome.victims) == ((ranks - 1,), tuple(range(ranks - 1)))
    assert only(outcome.findings).kind is FindingKind.MISSING


def test_the_first_left_all_alone(four: World) -> None:
    outcome = four.run(the_first_returns, deadline=DEADLINE_S)
    assert (outcome.culprits, outcome.victims) == ((0,), (1, 2, 3))
    assert only(outcome.findings).kind is FindingKind.MISSING


@pytest.mark.parametrize("body", [the_last_returns_in_the_third_round, one_in_the_middle_goes_past_it_once])
def test_the_line_is_that_by_which_the_culprit_used_to_come(body: Callable[[], None], four: World) -> None:
    """Its partner comes to the group by another line, where the culprit comes to the next group."""
    outcome = four.run(body, deadline=DEADLINE_S)
    (site, *_) = only(outcome.findings).sides[0].sites
    assert site is not None
    assert site.line == odd_line(body)


def test_who_takes_the_wrong_one_of_two_neighbours_is_told_so(four: World) -> None:
    """All others go on from one group to the next together."""

    def body() -> None:
        rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        me = dist.get_rank()
        for step in range(3):
            reduce_on(rows[me // 2])
            reduce_on(rows[0] if me == 1 and step == 2 else columns[me % 2])

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (1,)
    assert only(outcome.findings).kind is FindingKind.GROUP


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_a_last_call_that_one_rank_makes_alone(op: str, ranks: int) -> None:
    """The backend lets it pass at once, as the root of a broadcast or the leaf of a reduce: all have returned."""

    def body(op: str) -> None:
        dist.barrier()
        if op == "broadcast" and dist.get_rank() == 0:
            dist.broadcast(torch.ones(2), 0)
        if op == "reduce" and dist.get_rank() == 1:
            dist.reduce(torch.ones(2), 0)

    with World(ranks) as world:
        outcome = world.run(body, op, deadline=DEADLINE_S)
    finding = only(outcome.findings)
    alone = 0 if op == "broadcast" else 1
    assert (finding.kind, outcome.culprits) == (FindingKind.EXTRA, (alone,))
