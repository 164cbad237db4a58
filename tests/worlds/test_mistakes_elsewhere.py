"""A mistake that shows where another group, or a message, is waited for: whose it is, and at which line."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.ledger import CAPACITY
from tests.worlds.elsewhere import ELSEWHERE, ODD, Body
from tests.worlds.parting import guilty_line

DEADLINE_S = 60.0


@pytest.mark.parametrize(("body", "kind"), ELSEWHERE.items(), ids=lambda it: getattr(it, "__name__", str(it)))
def test_who_where_and_what(four: World, body: Body, kind: FindingKind) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (ODD,), outcome.summary()
    (finding,) = outcome.findings
    assert finding.kind is kind
    assert {site.line for site in finding.sides[0].sites if site is not None} == {guilty_line(body)}


def test_who_is_held_up_by_another_is_not_to_blame(four: World) -> None:
    """Of the pair nobody is in the majority; that a third has gone ahead, and waits for one of them, says nothing."""

    def body() -> None:
        pair, other = dist.new_group([0, 2]), dist.new_group([0, 1])
        me = dist.get_rank()
        if me in (0, 2):
            dist.broadcast(torch.ones(3 if me == ODD else 4), src=0, group=pair)
        if me in (0, 1):
            dist.barrier(group=other)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.SIZE, (), (0, 2))


def test_a_message_behind_a_call_that_both_make_is_a_deadlock(four: World) -> None:
    def body() -> None:
        me = dist.get_rank()
        if me == 0:
            dist.recv(torch.ones(1), src=1)
        dist.barrier()
        if me == 1:
            dist.send(torch.ones(1), dst=0)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.ranks) == (FindingKind.DEADLOCK, (0, 1))


def test_who_is_in_every_circle_is_to_blame(four: World) -> None:
    """Who has gone on waits for it in another group: of the two that wait for each other one is right."""

    def body() -> None:
        me, group = dist.get_rank(), dist.new_group([0, 1, ODD])
        if me == ODD:
            dist.barrier(group=group)  # too early
        if me == 0:
            dist.send(torch.ones(1), dst=ODD)
        if me == ODD:
            dist.recv(torch.ones(1), src=0)
        dist.barrier()
        if me in (0, 1):
            dist.barrier(group=group)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, (ODD,))
    assert finding.lines[0].startswith(f"deadlock: rank {ODD} waits in barrier #0 on ")


def test_in_a_group_of_one_a_call_more_or_less_is_nobodys_mistake(four: World) -> None:
    def body() -> None:
        alone, nested = [dist.new_group([rank]) for rank in range(4)], dist.new_group([0, 1])
        me = dist.get_rank()
        for step in range(3):
            if me != ODD or step != 1:
                dist.all_reduce(torch.ones(1), group=alone[me])
            if me < 2:
                dist.barrier(group=nested)
        dist.barrier()

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()


@pytest.mark.parametrize("calls", [200, pytest.param(CAPACITY + 1000, marks=pytest.mark.nightly)])
def test_of_calls_that_the_ledger_has_forgotten_no_innocent_is_blamed(four: World, calls: int) -> None:
    """Many more steps than the ring holds, and the call that was left out is long gone."""
    steps_between = -(-2 * CAPACITY // calls)

    def body() -> None:
        me = dist.get_rank()
        for step in range(calls):
            if me != ODD or step != 5:
                dist.all_reduce(torch.ones(1))
            for _ in range(steps_between):
                os.path.exists("nothing")  # looking for a file is a step too, and waits for nobody

    outcome = four.run(body, deadline=DEADLINE_S)
    assert min(rank.ledger.dropped for rank in outcome.ranks) >= CAPACITY // 2
    assert outcome.culprits in ((), (ODD,), (0, 1, 2, 3)), outcome.summary()


def test_a_group_of_the_others_that_was_made_for_something_else_is_no_witness(four: World) -> None:
    def body() -> None:
        others, _, pair = (dist.new_group(ranks) for ranks in ([2, 3], [1, 2, 3], [0, 1]))
        me = dist.get_rank()
        if me == 1:
            dist.broadcast(torch.ones(7), src=1, group=pair)
        if me in (2, 3):
            dist.reduce(torch.ones(7), dst=2, group=others)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.MISSING, (), (0, 1))


def test_a_group_that_has_another_ones_others_is_no_witness(four: World) -> None:
    def body() -> None:
        alone, others, pair = (dist.new_group(ranks) for ranks in ([0, 3], [1, 2], [0, 3]))
        me = dist.get_rank()
        for _ in range(2):
            dist.all_reduce(torch.ones(1), group=pair if me in (0, 3) else others)
        for step in range(3):
            if me == 3 or (me == 0 and step != 1):
                dist.barrier(group=alone)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.MISSING, (), (0, 3))
