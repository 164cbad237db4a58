"""Groups whose ranks are not the global ranks: values in group rank order, errors that name group ranks."""

from __future__ import annotations

import inspect
import os
import pathlib
from typing import Any

import pytest
import torch.distributed as dist

import rankdrill
from rankdrill.errors import UsageError
from rankdrill.gathers import (
    NFSWorkspace,
    all_gather,
    all_gather_list,
    all_gather_object,
    all_gather_shm,
    all_gather_via_filesys,
    gather,
    gather_and_save_checkpoint,
    gather_object,
    get_configs_parallel,
    get_tensors_parallel,
    load_checkpoint,
)
from tests.gathers import all_ways
from tests.gathers.all_ways import LARGE, SMALL, At, tensor, troubled, way
from tests.gathers.attempts import TIMEOUT_S, Raised, Unpicklable, all_alike, attempt

# torch sorts the ranks that `new_group` is given, unless told otherwise (`sort_ranks`, which older ones do not have).
IN_ORDER_GIVEN: dict[str, Any] = (
    {"sort_ranks": False} if "sort_ranks" in inspect.signature(dist.new_group).parameters else {}
)
NIGHTLY = pytest.mark.nightly
SORTS = pytest.mark.skipif(not IN_ORDER_GIVEN, reason="this torch always sorts")
# (ranks, in the order given), and over which line they always run: what a group looks like does not depend on it.
GROUPS: list[tuple[tuple[int, ...], bool, set[str]]] = [
    ((2, 3), False, {"gloo"}),
    ((3, 1), False, {"local"}),
    ((3, 1), True, {"local", "gloo"}),
    ((1, 2, 3), False, {"local"}),
    ((3,), False, {"gloo"}),
]


def on_lines(groups: list[tuple[tuple[int, ...], bool, set[str]]]) -> pytest.MarkDecorator:
    """Each group over each line: always, or at night."""
    pairs = [
        pytest.param(line, ranks, as_given, marks=[*([SORTS] * as_given), *([] if line in always else [NIGHTLY])])
        for line in ("local", "gloo")
        for ranks, as_given, always in groups
    ]
    return pytest.mark.parametrize(("line", "ranks", "as_given"), pairs, indirect=["line"], scope="module")


def made(ranks: tuple[int, ...], as_given: bool = False) -> tuple[Any, list[int]]:
    """The group of `ranks`, and its members by group rank."""
    return dist.new_group(list(ranks), **(IN_ORDER_GIVEN if as_given else {})), list(
        ranks if as_given else sorted(ranks)
    )


@on_lines(GROUPS)
def test_values_come_in_group_rank_order(
    world: rankdrill.World, tmp_path: pathlib.Path, ranks: tuple[int, ...], as_given: bool
) -> None:
    def body() -> Any:
        group, members = made(ranks, as_given)
        if dist.get_rank() not in members:
            return []
        at, me = At(group, str(tmp_path)), members.index(dist.get_rank())
        assert (dist.get_rank(group), at.members) == (me, members)
        wrong = []
        for one in all_ways.WAYS:
            for numbers in (SMALL, LARGE, SMALL):
                got = one(tensor(members[me], numbers), at)
                if got != one.expected(members, numbers, me):
                    wrong.append((one.name, numbers, got))
        return wrong

    assert world.run(body).unwrap() == [[]] * 4
    assert [entry.name for entry in tmp_path.iterdir() if not entry.name.endswith(".pt")] == []


@on_lines(GROUPS[:-1])
def test_errors_name_group_ranks(
    world: rankdrill.World, tmp_path: pathlib.Path, ranks: tuple[int, ...], as_given: bool
) -> None:
    def body() -> Any:
        group, members = made(ranks, as_given)
        if dist.get_rank() not in members:
            return None
        at, failing = At(group, str(tmp_path)), dist.get_rank() == members[1]
        failures = {
            one.name: attempt(one, troubled(Unpicklable()) if failing else tensor(0), at) for one in all_ways.WAYS
        }
        # Exactly the ranks called for take part: here fewer than the group has, and named as in the group all the same.
        few = members[-2:]
        if dist.get_rank() in few:
            value = Unpicklable() if dist.get_rank() == few[1] else 0
            failures["few"] = attempt(configs, value, few, group)
        return failures, {one.name: one(tensor(0), at)[:1] for one in all_ways.WAYS if one.to_all}

    failed = [told for told in world.run(body).unwrap() if told is not None]
    assert len(failed) == len(ranks)
    after = all_alike([values for _, values in failed])
    assert set(map(tuple, after.values())) == {((SMALL, 0, 0),)}
    for name in (one.name for one in all_ways.WAYS):
        told = all_alike([failures[name] for failures, _ in failed])
        assert (name, told.kind, told.ranks) == (name, "EncodeError", (1,))
        assert "rank 1: " in told.text
    few: Raised = all_alike([failures["few"] for failures, _ in failed if "few" in failures])
    assert (few.kind, few.ranks) == ("EncodeError", (len(ranks) - 1,))


def configs(value: Any, ranks: list[int], group: Any = None) -> list[Any]:
    with get_configs_parallel(value, ranks, group, timeout=TIMEOUT_S) as seen:
        return seen


def test_a_rank_that_does_not_come_is_named_by_its_group_rank(world: rankdrill.World) -> None:
    def body() -> Any:
        group, members = made((1, 2, 3))
        lost = few = None
        if dist.get_rank() in (1, 2):
            lost = attempt(way("all_gather"), tensor(0), At(group, "", timeout=1.5))
        dist.barrier()
        if dist.get_rank() == 2:
            with_one = get_configs_parallel(0, [2, 3], group, timeout=1.5)
            few = attempt(with_one.__enter__)
        dist.barrier()
        after = attempt(way("all_gather"), tensor(7), At(group, "")) if dist.get_rank() in members else None
        return lost, few, after

    got = world.run(body).unwrap()
    lost, few = all_alike([got[rank][0] for rank in (1, 2)]), got[2][1]
    assert (lost.kind, lost.ranks) == (few.kind, few.ranks) == ("PeerLost", (2,))
    assert all_alike([got[rank][2] for rank in (1, 2, 3)]) == [(SMALL, 7, 7)] * 3


def test_a_receiver_outside_the_group_is_everybodys_error(world: rankdrill.World) -> None:
    def body() -> Any:
        group, members = made((1, 2, 3))
        if dist.get_rank() not in members:
            return None
        return [
            attempt(gather_object, 0, None, group=group, timeout=TIMEOUT_S),
            attempt(gather_object, 0, None, group=group, dst=0, timeout=TIMEOUT_S),
            attempt(gather_object, 0, None, group=group, group_dst=3, timeout=TIMEOUT_S),
        ]

    nobody, dst, group_dst = all_alike(world.run(body).unwrap()[1:])
    assert nobody.kind == dst.kind == group_dst.kind == "ArgumentMismatch"
    assert nobody.ranks == dst.ranks == group_dst.ranks == (0, 1, 2)
    assert "has global ranks [1, 2, 3]" in nobody.text
    assert "the group has ranks 0 to 2" in group_dst.text


def test_ranks_outside_a_group(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    """As in torch nothing happens in the gathers that torch has, nor where `ranks` are named; the others refuse."""

    def refused(call: Any, *args: Any, **kwargs: Any) -> str:
        with pytest.raises(UsageError, match="not a member"):
            call(*args, **kwargs)
        return "refused"

    def body() -> Any:
        group, members = made((2, 3))
        made((1, 3))  # to a rank outside of several groups torch gives the same object for all of them
        if dist.get_rank() in members:
            return all_gather(dist.get_rank(), group=group, timeout=TIMEOUT_S)
        untouched: list[Any] = ["untouched"]
        all_gather_object(untouched, 0, group)
        gather_object(0, untouched, 2, group)
        path = str(tmp_path / "outside")
        told = {
            refused(all_gather, 0, group=group),
            refused(all_gather, 0, False, True, path, group=group),
            refused(all_gather_list, 0, group),
            refused(all_gather_shm, 0, group=group),
            refused(all_gather_via_filesys, 0, path, group=group),
            refused(gather, 0, group=group),
            refused(NFSWorkspace, path, group=group),
            refused(gather_and_save_checkpoint, path, 0, group=group),
            refused(load_checkpoint, path, group=group),
        }
        with get_tensors_parallel(None, members, group) as tensors:
            return untouched, told, configs(0, members, group), configs(0, members), tensors, os.path.exists(path)

    outside: Any = (["untouched"], {"refused"}, [], [], [], False)
    assert world.run(body).unwrap() == [outside, outside, [2, 3], [2, 3]]
