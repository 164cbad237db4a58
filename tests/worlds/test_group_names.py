"""Groups made with use_local_synchronization, which torch gives names that members do not share, or that are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 60.0
SHORT_S = 5.0  # of which all is waited for: what is left in the store may still be overwritten
TRIES = 5  # of what nearly always fails


@pytest.fixture
def four() -> Iterator[World]:
    with World(4) as world:
        yield world


def alone(*ranks: int) -> dist.ProcessGroup | None:
    if dist.get_rank() not in ranks:
        return None
    made: dist.ProcessGroup = dist.new_group(list(ranks), use_local_synchronization=True)
    return made


def one_holds_more() -> None:
    alone(0, 1)
    alone(1, 2)


def one_holds_less() -> None:
    alone(0, 1, 2)
    alone(0, 1, 2, 3)


def one_has_destroyed() -> None:
    pair = alone(0, 1)
    if dist.get_rank() == 0:
        dist.barrier(pair)
        dist.destroy_process_group(pair)
    elif pair is not None:
        dist.barrier(pair)
    alone(0, 1, 2, 3)


@pytest.mark.parametrize(
    ("body", "apart"),
    [
        (one_holds_more, {(1,): 2, (2,): 1}),
        (one_holds_less, {(3,): 1, (0, 1, 2): 2}),
        (one_has_destroyed, {(0, 2, 3): 1, (1,): 2}),
    ],
)
def test_members_that_hold_different_numbers_of_groups_are_told_at_once(
    four: World, body: Callable[[], None], apart: dict[tuple[int, ...], int]
) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument, finding.culprits) == (FindingKind.GROUP, "name", ())
    assert {side.ranks for side in finding.sides} == set(apart)
    for side in finding.sides:
        held = apart[side.ranks]
        assert (
            f" while {'it holds' if len(side.ranks) == 1 else 'they hold'} {held} group{'s' * (held > 1)}" in side.did
        )
        assert all(site is not None and site.function == "alone" for site in side.sites)
    assert "majority" not in str(finding)
    assert "torch names such a group by that number, so they never find each other" in finding.sides[-1].did
    assert not any(rank.status == "stuck" and not rank.cut and rank.wait is None for rank in outcome.ranks)


def test_who_leaves_out_a_group_of_its_own_is_why_others_wait(four: World) -> None:
    """That rank 1 then holds fewer than the others is a consequence."""

    def body() -> None:
        if dist.get_rank() != 1:
            alone(0, 1, 3)
        alone(1, 2)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (1,)), outcome.summary()


def made_again() -> None:
    for _ in range(20):
        group = alone(0, 1, 2)
        if group is not None:
            dist.all_reduce(torch.ones(1), group=group)
            dist.barrier(group)
            dist.destroy_process_group(group)


def test_a_name_that_is_given_again_is_told() -> None:
    for _ in range(TRIES):
        with World(4) as world:
            outcome = world.run(made_again, deadline=SHORT_S)
        if not outcome.ok:
            break
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument) == (FindingKind.GROUP, "name"), outcome.summary()
    assert set(finding.culprits) <= {0, 1, 2}
    assert "to which torch gives the name of one that was destroyed" in str(finding)
    assert "new_local_group #0 " not in str(finding), "the first one was nobody's before"


def as_many_on_all() -> None:
    for members in ((0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3)):
        group = alone(*members)
        if group is not None:
            dist.all_reduce(torch.ones(1), group=group)


def under_names_by_count() -> None:
    """torch counts the others, and gives none of their names again."""
    for _ in range(5):
        group = dist.new_group([0, 1, 2])
        if dist.get_rank() < 3:
            dist.all_reduce(torch.ones(1), group=group)
            dist.destroy_process_group(group)


@pytest.mark.parametrize("body", [as_many_on_all, under_names_by_count])
def test_what_is_right_is_no_finding(four: World, body: Callable[[], None]) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()
    assert outcome.findings == ()
