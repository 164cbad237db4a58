"""Every rank has to call `new_group`, member or not: who does not is found, though nobody may wait for it."""

from __future__ import annotations

import contextlib
import linecache
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from rankdrill import Plan, World
from rankdrill.diagnosis import FindingKind
from rankdrill.errors import ContractBroken
from rankdrill.step import Kind
from rankdrill.worlds import Status, Verdict

DEADLINE_S = 60.0
ODD = 2


def leaves_before() -> None:
    dist.barrier()
    if dist.get_rank() != ODD:
        dist.new_group([0, 1])  # most


def makes_one_more() -> None:
    dist.new_group([0, 1])
    if dist.get_rank() == ODD:
        dist.new_group([ODD])  # odd


def another_membership() -> None:
    if dist.get_rank() == ODD:
        dist.new_group([0, 1, ODD])  # odd
    else:
        dist.new_group([0, 1])  # most


def a_group_of_its_own() -> None:
    if dist.get_rank() == ODD:
        dist.new_group([ODD])  # odd
    else:
        dist.new_group([0, 1])  # most


def another_order() -> None:
    pairs = [[0, 1], [2, 3]]
    for pair in reversed(pairs) if dist.get_rank() == ODD else pairs:
        dist.new_group(pair)


@pytest.mark.parametrize(
    ("body", "kind", "marks"),
    [
        (leaves_before, "missing call", [{"most"}, {"most"}]),
        (makes_one_more, "extra call", [{"odd"}, set()]),
        (another_membership, "group mismatch", [{"odd"}, {"most"}]),
        (another_order, "group mismatch", None),
        (a_group_of_its_own, "group mismatch", [{"odd"}, {"most"}]),
    ],
)
def test_a_mistake_is_one_finding(four: World, body: Callable[[], None], kind: str, marks: Any) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert not outcome.ok
    assert outcome.verdict is Verdict.BROKEN
    assert outcome.culprits == (ODD,)
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument) == (kind, "members")
    sides = [side for side in finding.sides if " past it by " not in side.did]
    assert [side.ranks for side in sides] == [(ODD,), (0, 1, 3)]
    if marks is not None:
        told = [
            {linecache.getline(site.file, site.line).rstrip().rpartition("# ")[2] for site in side.sites if site}
            for side in sides
        ]
        assert told == marks
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    assert isinstance(caught.value.exceptions[0], ContractBroken)
    assert four.run(dist.get_rank).ok, "on fresh ranks"


def test_the_number_is_that_of_the_call_also_on_warm_ranks(four: World) -> None:
    def body() -> None:
        dist.new_group([0, 1])
        if dist.get_rank():
            dist.new_group([1, 2])

    assert four.run(lambda: bool(dist.new_group())).ok
    (finding,) = four.run(body).findings
    assert finding.step == "new_group #2 on 'default'"
    assert finding.sides[0].ranks == (0,)
    assert finding.sides[-1].did == "call new_group #2 on 'default' (ranks=1,2)"


def test_one_against_one_disagree() -> None:
    def body() -> None:
        if dist.get_rank():
            dist.new_group([1])

    with World(2) as two:
        outcome = two.run(body)
    (finding,) = outcome.findings
    assert finding.culprits == ()
    assert outcome.culprits == (0, 1)
    assert "rank 0 ends without new_group #0" in outcome.summary()
    assert finding.sides[0].sites == finding.sides[1].sites != (None,)


def everybody() -> None:
    for rank in range(4):
        dist.new_group([rank])
    dist.new_group()
    dist.new_group([3, 1] if dist.get_rank() else [1, 3])


def from_different_lines() -> None:
    if dist.get_rank() in (0, 1):
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(1), group=group)
    else:
        dist.new_group([0, 1])


def a_part_of_ones_own() -> None:
    """Torch's own: a group is divided that is not the same on all ranks."""
    mine, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])  # type: ignore[no-untyped-call]
    each, _ = dist.new_subgroups(group_size=1, group=mine)  # type: ignore[no-untyped-call]
    dist.all_reduce(torch.ones(1), group=each)


def members_alone() -> None:
    if dist.get_rank() < 2:
        dist.new_group([0, 1], use_local_synchronization=True)


def a_mesh() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dist.all_reduce(torch.ones(1), group=mesh["tp"].get_group())


def refused_on_one() -> None:
    if dist.get_rank() == ODD:
        for wrong in ([0, 0], [0, 9], ["a"], 5):
            with contextlib.suppress(Exception):
                dist.new_group(wrong)
    dist.new_group([0, 1])


@pytest.mark.parametrize(
    "body", [everybody, from_different_lines, a_part_of_ones_own, members_alone, a_mesh, refused_on_one]
)
def test_what_is_right_is_no_finding(four: World, body: Callable[[], None]) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.findings == ()
    assert outcome.ok, outcome.summary()


def test_a_rank_that_raised_or_died_speaks_for_itself(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == ODD:
            raise ValueError("no shard")
        dist.new_group([0, 1])

    outcome = four.run(body)
    assert outcome.findings == ()
    assert outcome.culprits == (ODD,)
    assert outcome.ranks[ODD].status is Status.RAISED


def test_without_contracts_it_passes_as_it_does_in_production() -> None:
    with World(4, contracts=False) as world:
        assert world.run(leaves_before).ok


def test_what_a_plan_leads_to_is_no_finding_there_nor_in_the_next_run(four: World) -> None:
    def body() -> None:
        with contextlib.suppress(MemoryError):
            group = dist.new_group([0, 1])
            if dist.get_rank() < 2:
                dist.barrier(group)  # both are connected
                dist.destroy_process_group(group)

    outcome = four.run(body, plan=Plan.parse(f"rank {ODD}: oom at group.new_group"))
    assert outcome.ok, outcome.summary()
    assert outcome.findings == ()
    following = four.run(body)
    assert following.ok, following.summary()


def test_it_is_a_step_where_faults_strike(four: World) -> None:
    def body() -> None:
        dist.new_group([0, 1])

    plan = Plan.parse("rank 1: exit(3) before group.new_group")
    outcome = four.run(body, plan=plan, deadline=2)  # the others wait for it in the store
    assert outcome.ranks[1].status is Status.DIED
    assert outcome.ranks[1].by_plan
    steps = [record.step for record in outcome.ranks[3].ledger if record.step.kind is Kind.GROUP]
    assert [str(step) for step in steps] == [f"group.new_group #{steps[0].sequence} on 'default' (ranks=0,1)"]
    assert steps[0].site is not None
    assert steps[0].site.function == "body"


def test_groups_made_by_their_members_meet_under_names_of_their_own(four: World) -> None:
    """torch gives such a name again, or gives ranks different ones: on ranks that are used again they never met."""

    def body() -> float:
        if dist.get_rank() > 1:
            return 0
        group = dist.new_group([0, 1], use_local_synchronization=True)
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        dist.destroy_process_group(group)
        return float(tensor)

    for _ in range(6):
        assert four.run(body, deadline=DEADLINE_S).unwrap() == [2, 2, 0, 0]
    four.run(everybody).unwrap()
    assert four.run(body, deadline=DEADLINE_S).unwrap() == [2, 2, 0, 0]


def test_a_member_that_never_makes_its_group_is_told(four: World) -> None:
    """Its members alone make it: the rank that is none has left nothing out."""

    def body() -> None:
        rank = dist.get_rank()
        for _ in range(2):
            if rank < 3:
                dist.new_group([0, 1, 2], use_local_synchronization=True)
        if rank in (0, 1):
            dist.new_group([0, 1, ODD], use_local_synchronization=True)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (ODD,)), outcome.summary()


def test_a_group_of_all_ranks_keeps_the_world_warm(four: World) -> None:
    four.run(lambda: bool(dist.new_group())).unwrap()
    assert four.warm
    four.run(lambda: bool(dist.new_group([0, 1]))).unwrap()
    assert not four.warm


def test_who_goes_past_a_group_and_makes_the_next_left_it_out(four: World) -> None:
    def body() -> None:
        if dist.get_rank() != ODD:
            dist.new_group([rank for rank in range(4) if rank != ODD])
        dist.new_group([0, 1, 2, 3])

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (ODD,)
    (finding,) = outcome.findings
    assert finding.kind == "missing call"
    assert finding.lines[0].startswith(f"missing call: rank {ODD} leaves out new_group #0 on 'default', at ")
    others = tuple(rank for rank in range(4) if rank != ODD)
    assert [side.ranks for side in finding.sides] == [(ODD,), (ODD,), (ODD,), others]  # left out, went past it by, made


class Workers:
    """As communicators are made that belong to somebody."""

    def __init__(self, ranks: list[int]) -> None:
        self.group = dist.new_group(ranks)


def test_who_goes_past_a_group_that_a_constructor_makes_left_it_out(four: World) -> None:
    def body() -> None:
        if dist.get_rank() != ODD:
            Workers([rank for rank in range(4) if rank != ODD])
        dist.new_group([0, ODD])

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == ("missing call", (ODD,))
    assert " past it by `if dist.get_rank() != ODD`" in str(finding)


def test_who_comes_early_to_make_a_group_has_left_out_what_the_others_are_in(four: World) -> None:
    def body() -> None:
        for _ in range(2 if dist.get_rank() == ODD else 3):
            dist.all_reduce(torch.ones(1))
        dist.new_group([0, 1, 2, 3])

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == ("missing call", (ODD,))
    assert finding.lines[0].startswith(f"missing call: rank {ODD} leaves out all_reduce #2 on 'default', at ")
    assert " past it by the end of `for _ in range(2 if " in finding.lines[0]


def test_how_a_rank_went_past_a_group_that_it_is_not_in_is_told_once(four: World) -> None:
    def body() -> None:
        if dist.get_rank() != ODD:
            dist.new_group([rank for rank in range(4) if rank != ODD])
        dist.barrier()

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == ("missing call", (ODD,))
    assert finding.lines[0].count(" past it by ") == 1


def test_who_leaves_out_a_group_that_it_is_in_is_told_at_once(four: World) -> None:
    def body() -> None:
        dist.barrier()
        if dist.get_rank() != ODD:
            everyone = dist.new_group([0, 1, 2, 3])  # most
            dist.all_reduce(torch.ones(1), group=everyone)
        dist.barrier()

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == ("missing call", (ODD,))
    assert [side.ranks for side in finding.sides] == [(ODD,), (0, 1, 3), (ODD,)]
    assert "leaves out new_group #0 on 'default' (ranks=0-3)" in finding.sides[0].did
    assert outcome.victims == (0, 1, 3)
    assert outcome.elapsed < DEADLINE_S / 2


def test_a_rank_that_is_late_to_make_a_group_is_waited_for(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == ODD:
            time.sleep(1.5)
        dist.new_group([0, 1, 2, 3])

    assert four.run(body, deadline=DEADLINE_S).ok
