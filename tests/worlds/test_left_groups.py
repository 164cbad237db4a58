"""Groups that are made again and again: one finding for those that nobody destroys, none for those that are needed."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from rankdrill import Plan, World
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.worlds import Outcome
from tests.torch_can import Can, needs

DEADLINE_S = 120.0
TURNS = 5


def found_on(outcome: Outcome) -> Finding:
    """The one finding, all whose sides are at the marked line."""
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument) == (FindingKind.LEAKED_GROUP, "group")
    sites = [site for side in finding.sides for site in side.sites if site is not None]
    assert sites
    assert all(linecache.getline(site.file, site.line).rstrip().endswith("# made") for site in sites)
    assert not outcome.ok
    return finding


def one_for_each_turn(turns: int = TURNS) -> None:
    for _ in range(turns):
        group = dist.new_group()  # made
        dist.all_reduce(torch.ones(1), group=group)


def a_new_helper() -> Any:
    return dist.new_group()  # made


def by_a_helper() -> None:
    for _ in range(TURNS):
        dist.barrier(a_new_helper())


def unused_between_others() -> None:
    for _ in range(TURNS):
        dist.new_subgroups_by_enumeration([[0], [1]])  # type: ignore[no-untyped-call]  # made
        dist.all_reduce(torch.ones(1))


def alone() -> None:
    rank = dist.get_rank()
    for _ in range(TURNS):
        dist.barrier(dist.new_group([rank], use_local_synchronization=True))  # made


@pytest.mark.parametrize("body", [one_for_each_turn, by_a_helper, unused_between_others, alone])
def test_groups_that_nobody_destroys(two: World, body: Any) -> None:
    finding = found_on(two.run(body, deadline=DEADLINE_S))
    assert finding.culprits == (0, 1)
    assert all(f"and never destroyed {TURNS} of them" in side.did for side in finding.sides)


def test_what_a_reader_is_told(two: World) -> None:
    finding = found_on(two.run(one_for_each_turn, deadline=DEADLINE_S))
    (line,) = finding.lines
    assert line.startswith(
        "leaked group: ranks 0, 1 made groups of ranks 0, 1 again and again, and never destroyed 5 of them, at "
    )
    assert line.endswith(" in one_for_each_turn")
    finding = found_on(two.run(unused_between_others, deadline=DEADLINE_S))
    assert "made groups of rank 0 again and again by new_subgroups_by_enumeration" in finding.lines[0]


def test_the_one_that_does_not_destroy_them(two: World) -> None:
    def body() -> None:
        for _ in range(TURNS):
            group = dist.new_group()  # made
            dist.barrier(group)
            if dist.get_rank() == 0:
                dist.destroy_process_group(group)

    finding = found_on(two.run(body, deadline=DEADLINE_S))
    assert finding.culprits == (1,)


def test_one_that_leaves_a_few_where_the_others_leave_none(two: World) -> None:
    def body() -> None:
        for _ in range(3):
            group = dist.new_group()  # made
            dist.barrier(group)
            if dist.get_rank() == 0:
                dist.destroy_process_group(group)

    assert found_on(two.run(body, deadline=DEADLINE_S)).culprits == (1,)


def a_few() -> None:
    one_for_each_turn(TURNS - 1)


def used_again_later() -> None:
    groups = []
    for _ in range(2 * TURNS):
        groups.append(dist.new_group())
        dist.barrier(groups[-1])
    for group in groups:
        dist.barrier(group)


def used_in_turn() -> None:
    groups = [dist.new_group() for _ in range(2 * TURNS)]
    for group in groups:
        dist.barrier(group)


def made_and_not_used_yet() -> None:
    """One for each thread of a pool, say, few of which are busy in a test."""
    groups = [dist.new_group() for _ in range(2 * TURNS)]
    dist.barrier()
    dist.barrier(groups[0])


def of_other_members() -> None:
    for _ in range(2):
        for members in ([0], [1], [0, 1]):
            group = dist.new_group(members)
            if dist.get_rank() in members:
                dist.barrier(group)


def all_but_one_in_turn() -> None:
    ranks = range(dist.get_world_size())
    for turn in range(2 * len(ranks)):
        members = [rank for rank in ranks if rank != turn % len(ranks)]
        group = dist.new_group(members)  # made
        if dist.get_rank() in members:
            dist.all_reduce(torch.ones(1), group=group)


def two_teams_as_it_comes() -> None:
    for turn in (0, 1, 0, 1, 1, 0, 0):
        members = [2 * turn, 2 * turn + 1]
        group = dist.new_group(members)  # made
        if dist.get_rank() in members:
            dist.all_reduce(torch.ones(1), group=group)


@pytest.mark.parametrize("body", [all_but_one_in_turn, two_teams_as_it_comes])
def test_groups_of_now_these_members_and_now_those(four: World, body: Any) -> None:
    assert found_on(four.run(body, deadline=DEADLINE_S)).culprits == (0, 1, 2, 3)


def rows_and_columns_twice() -> None:
    for _ in range(2):
        for members in ([0, 1], [2, 3], [0, 2], [1, 3]):
            group = dist.new_group(members)
            if dist.get_rank() in members:
                dist.all_reduce(torch.ones(1), group=group)


def many_meshes() -> None:
    """One for each case; they have no way to be destroyed."""
    for _ in range(2 * TURNS):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        for axis in ("outer", "inner"):
            dist.all_reduce(torch.ones(1), group=mesh.get_group(axis))


@pytest.mark.parametrize("body", [rows_and_columns_twice, many_meshes])
def test_what_is_made_again_may_be_tried_again(four: World, body: Any) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()


def destroyed_with_the_default_group() -> None:
    one_for_each_turn()
    dist.destroy_process_group()


def aborted() -> None:
    for _ in range(TURNS):
        group: Any = dist.new_group()
        dist.barrier(group)
        group.abort()


@pytest.mark.parametrize(
    "body",
    [
        a_few,
        used_again_later,
        used_in_turn,
        made_and_not_used_yet,
        of_other_members,
        destroyed_with_the_default_group,
        aborted,
    ],
)
def test_groups_that_are_needed_or_few(two: World, body: Any) -> None:
    if body is aborted:
        needs(Can.ABORT)
    outcome = two.run(body, deadline=DEADLINE_S)
    assert outcome.findings == ()
    assert outcome.ok, outcome.summary()


def test_each_run_begins_anew(two: World) -> None:
    def body() -> None:
        dist.barrier(dist.new_group())

    for _ in range(2 * TURNS):
        assert two.run(body, deadline=DEADLINE_S).ok


def test_what_a_library_makes_is_its_own_affair(two: World, tmp_path: Any) -> None:
    library = tmp_path / "site-packages" / "some_library.py"
    library.parent.mkdir()
    library.write_text("import torch.distributed as dist\n\ndef make():\n    return dist.new_group()\n")

    def body(path: str) -> None:
        import runpy

        make = runpy.run_path(path)["make"]
        for _ in range(TURNS):
            dist.barrier(make())

    assert two.run(body, str(library), deadline=DEADLINE_S).ok


def test_under_a_plan_it_is_no_finding(two: World) -> None:
    outcome = two.run(one_for_each_turn, plan=Plan.parse("rank 1: delay(0.01) before collective.all_reduce #1"))
    assert outcome.findings == ()


def of_some_that_all_make() -> None:
    """Rank 1 is in none of them, and makes them all."""
    others = [rank for rank in range(dist.get_world_size()) if rank != 1]
    for _ in range(TURNS):
        group = dist.new_group(others)  # made
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(1), group=group)


def test_who_makes_them_as_no_member_is_told_too(four: World) -> None:
    found = found_on(four.run(of_some_that_all_make, deadline=DEADLINE_S))
    assert found.culprits == (0, 1, 2, 3)
    assert "rank 1 made them, too, as no member" in str(found)
