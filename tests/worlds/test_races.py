"""Messages that several may send first: one finding where it matters who does, though all ranks returned."""

from __future__ import annotations

import linecache

import pytest
import torch
import torch.distributed as dist

from rankdrill import Plan, World
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.errors import ContractBroken
from rankdrill.step import Site
from rankdrill.worlds import Outcome, Verdict

DEADLINE_S = 60.0
EARLY_S = 30.0  # far below the deadline, for any machine


def found_on(outcome: Outcome) -> Finding:
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument) == (FindingKind.RACE, "peer")
    assert marks(finding)[0] == {"received"}
    return finding


def marks(finding: Finding) -> list[set[str]]:
    """How the lines of each side end."""
    return [{_mark(site) for site in side.sites if site is not None} for side in finding.sides]


def _mark(site: Site) -> str:
    return linecache.getline(site.file, site.line).rstrip().rpartition("# ")[2]


def in_the_order_in_which_they_come(receivers: tuple[int, ...] = (0,)) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = torch.zeros(size - len(receivers), 3)
    if rank in receivers:
        for row in rows:
            dist.recv(row, tag=4)  # received
    else:
        mine = torch.full((3,), float(rank))
        for work in [dist.isend(mine, dst=receiver, tag=4) for receiver in receivers]:  # sent
            work.wait()  # type: ignore[union-attr]


def answers_in_a_row() -> None:
    rank, question = dist.get_rank(), torch.ones(2)
    if rank == 0:
        for worker in (3, 2, 1):
            dist.recv(question)  # received
            dist.send(question * 2, dst=worker)
    else:
        dist.send(question * rank, dst=0)  # sent
        dist.recv(question, src=0)


def in_a_group_of_three() -> None:
    group = dist.new_group([1, 2, 3])
    dist.barrier()
    rows = [torch.zeros(2), torch.zeros(2)]
    if dist.get_rank() == 3:
        for row in rows:
            dist.irecv(row, group=group).wait()  # type: ignore[union-attr]  # received
    elif dist.get_rank() > 0:
        dist.send(torch.full((2,), float(dist.get_rank())), dst=3, group=group)  # sent


def sums() -> None:
    part, total = torch.zeros(3), torch.zeros(3)
    if dist.get_rank() == 0:
        for _ in range(dist.get_world_size() - 1):
            dist.recv(part)
            total += part
        assert total.tolist() == [6, 6, 6]
    else:
        dist.send(torch.full((3,), float(dist.get_rank())), dst=0)


def without_a_file(source: str) -> None:
    exec(source, {"dist": dist, "torch": torch})


def test_the_receiver_is_told_and_who_sends(four: World) -> None:
    outcome = four.run(in_the_order_in_which_they_come, deadline=DEADLINE_S)
    finding = found_on(outcome)
    assert (outcome.verdict, outcome.culprits, outcome.victims) == (Verdict.BROKEN, (0,), ())
    assert (finding.culprits, finding.step) == ((0,), "recv on 'default'")
    assert marks(finding)[1] == {"sent"}
    first, second = finding.lines
    assert first.startswith(
        "message race: rank 0 receives from anybody (tag 4), and keeps what it receives in the order in which it comes"
    )
    assert "send to rank 0 (tag 4), and nothing orders the two, at " in second
    with pytest.raises(ExceptionGroup) as raised:
        outcome.unwrap()
    assert [type(error) for error in raised.value.exceptions] == [ContractBroken]


def test_several_receivers_are_one_finding(four: World) -> None:
    finding = found_on(four.run(in_the_order_in_which_they_come, (1, 2), deadline=DEADLINE_S))
    assert finding.culprits == (1, 2)
    assert "ranks 1, 2 receive from anybody (tag 4), and keep what they receive in the order" in str(finding)
    assert [side.ranks for side in finding.sides] == [(1, 2), (0, 3), (0, 3)]


def test_in_another_group(four: World) -> None:
    finding = found_on(four.run(in_a_group_of_three, deadline=DEADLINE_S))
    assert finding.culprits == (3,)
    assert finding.sides[1].ranks == (1, 2)


def test_whether_they_come_in_order_or_not(four: World) -> None:
    """Answered in the wrong order, over gloo they wait for each other."""
    outcome = four.run(answers_in_a_row, deadline=DEADLINE_S)
    assert outcome.elapsed < EARLY_S
    assert found_on(outcome).culprits == (0,)


def test_what_others_do_with_their_messages_is_their_own(four: World) -> None:
    found_on(four.run(in_the_order_in_which_they_come, deadline=DEADLINE_S))
    four.run(sums, deadline=DEADLINE_S).unwrap()


def test_without_source_nothing_is_said(four: World) -> None:
    body = """
rows = torch.zeros(3, 2)
if dist.get_rank() == 0:
    for row in rows:
        dist.recv(row)
else:
    dist.send(torch.full((2,), float(dist.get_rank())), dst=0)
"""
    four.run(without_a_file, body, deadline=DEADLINE_S).unwrap()


def test_under_a_plan_and_without_contracts_nothing_is_said(four: World) -> None:
    plan = Plan.parse("rank 1: delay(0.01) before collective.send")
    four.run(in_the_order_in_which_they_come, plan=plan, deadline=DEADLINE_S).unwrap()
    with World(4, contracts=False) as world:
        world.run(in_the_order_in_which_they_come, deadline=DEADLINE_S).unwrap()
