"""gather_and_save_checkpoint and load_checkpoint on real ranks, with a healthy and with a broken file system."""

from __future__ import annotations

import os
import pathlib
from collections import deque
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import StorageError, UsageError
from rankdrill.gathers import gather_and_save_checkpoint, load_checkpoint
from tests.covering import thinned
from tests.gathers.attempts import TIMEOUT_S, Raised, Unloadable, Unpicklable, all_alike, attempt, raiser
from tests.gathers.checkpoints import in_directory, load, loaded, save

ASIDE = ".rankdrill-checkpoint-*.part"


def test_each_rank_gets_its_own_back(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "deep" / "down" / "last.pt"

    def body() -> Any:
        save(path, 1)
        first = load(path)
        save(path, 2)
        return first, load(path)

    got = world.run(body).unwrap()
    assert got == list(zip(loaded(1), loaded(2), strict=True))
    assert in_directory(path) == ["last.pt"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_torch_opens_the_file_and_unpickles_nothing(world: rankdrill.World, path: pathlib.Path) -> None:
    world.run(lambda: save(path, 3)).unwrap()
    content = torch.load(path)
    assert (content["format"], content["version"], content["world_size"]) == ("rankdrill checkpoint", 1, 4)
    assert content["shared_state"]["weights"].tolist() == [3.0] * 50_000
    assert [one.dtype for one in content["local_states"]] == [torch.uint8] * 4
    # Nothing but the states themselves: no frame and no storage that they were views of.
    assert path.stat().st_size < 50_000 * 4 + 4 * (5_056 + 4_000)


def test_states_of_any_type_where_that_is_wanted(world: rankdrill.World, path: pathlib.Path) -> None:
    def body() -> Any:
        value = deque([dist.get_rank()], maxlen=3)
        refused = attempt(gather_and_save_checkpoint, path, value, timeout=TIMEOUT_S)
        shared = attempt(gather_and_save_checkpoint, path, 0, value, timeout=TIMEOUT_S)
        none = os.listdir(path.parent)
        dist.barrier()
        gather_and_save_checkpoint(path, value, value, weights_only=False, timeout=TIMEOUT_S)
        unsafe = attempt(load_checkpoint, path, timeout=TIMEOUT_S)
        got = load_checkpoint(path, weights_only=False, timeout=TIMEOUT_S)
        return (refused, shared, unsafe, none), got.local_state, got.shared_state

    got = world.run(body).unwrap()
    refused, shared, unsafe, none = all_alike([one[0] for one in got])
    assert [(one.kind, one.ranks) for one in (refused, shared, unsafe)] == [
        ("EncodeError", (0, 1, 2, 3)),
        ("EncodeError", (0,)),
        ("DecodeError", (0, 1, 2, 3)),
    ]
    assert "local_state holds collections.deque" in refused.text
    assert "shared_state holds collections.deque" in shared.text
    assert all("weights_only=False" in one.text for one in (refused, shared, unsafe))
    assert none == []
    assert [one[1:] for one in got] == [(deque([rank]), deque([0])) for rank in range(4)]


def test_a_rank_of_a_subgroup_saves(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> Any:
        pair = dist.get_rank() // 2
        group = [dist.new_group([0, 1]), dist.new_group([2, 3])][pair]
        save(tmp_path / str(pair), group=group, group_dst=1)
        saver = load_checkpoint(tmp_path / str(pair), group=group).shared_state["saver"]
        outside = [dist.new_group([0, 1]), dist.new_group([2, 3])][1 - pair]
        with pytest.raises(UsageError, match="not a member"):
            save(tmp_path / "other", group=outside)
        return saver, load(tmp_path / str(pair), group=group)[0]

    assert world.run(body).unwrap() == [(1, 0), (1, 1), (3, 2), (3, 3)]


# ---------------------------------------------------------------------------------------------- another world size


def deal(states: list[Any], rank: int, size: int) -> dict[str, Any]:
    """The order of all, dealt out anew."""
    order = torch.cat([one["order"] for one in states])
    return {**states[0], "rank": [one["rank"] for one in states], "order": order[rank::size]}


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (4, 1)])
def test_another_world_size(before: int, after: int, path: pathlib.Path) -> None:
    with rankdrill.World(before) as world:
        world.run(save, path, 5).unwrap()
    order = [rank + i for rank in range(before) for i in range(3)]

    def body() -> Any:
        return attempt(load, path), load(path, reshard=deal), attempt(load, path, reshard=raiser(KeyError("no")))

    with rankdrill.World(after) as world:
        got = world.run(body).unwrap()
    refused, failed = all_alike([(one[0], one[2]) for one in got])
    assert (refused.kind, refused.ranks) == ("ArgumentMismatch", tuple(range(after)))
    assert f"saved by {before} ranks, loaded by {after}: give reshard=" in refused.text
    assert (failed.kind, failed.ranks) == ("DecodeError", tuple(range(after)))
    assert [one[1] for one in got] == [
        (list(range(before)), 5, order[rank::after], 5.0, before) for rank in range(after)
    ]


def test_without_a_group_this_is_a_world_of_one(path: pathlib.Path) -> None:
    gather_and_save_checkpoint(path, {"at": 3}, [torch.ones(2)])
    got = load_checkpoint(path)
    assert (got.local_state, got.shared_state[0].tolist(), got.world_size) == ({"at": 3}, [1.0, 1.0], 1)
    with pytest.raises(StorageError, match=r"rank 0: IsADirectoryError.*"):
        gather_and_save_checkpoint(path.parent, None)
    assert in_directory(path) == ["last.pt"]


# ---------------------------------------------------------------------------------------------- failing together


def wrong(case: str, path: Any) -> Any:
    rank = dist.get_rank()
    local: Any = rank
    shared: Any = rank
    kwargs: dict[str, Any] = {}
    match case:
        case "unpicklable":
            local = Unpicklable() if rank == 1 else rank
        case "unloadable":
            local, kwargs = (Unloadable() if rank == 3 else rank), {"weights_only": False}
        case "unpicklable shared state":
            shared, kwargs = Unpicklable(), {"group_dst": 2}
        case "another path":
            path = f"{path}-{rank == 2}"
        case "another saver":
            kwargs = {"group_dst": int(rank == 1)}
        case "no such saver":
            kwargs = {"group_dst": 4}
        case "no path":
            path = None
    return attempt(gather_and_save_checkpoint, path, local, shared, timeout=TIMEOUT_S, **kwargs)


@pytest.mark.parametrize(
    ("case", "kind", "ranks"),
    [
        ("unpicklable", "EncodeError", (1,)),
        ("unloadable", "EncodeError", (3,)),
        ("unpicklable shared state", "EncodeError", (2,)),
        ("another path", "ArgumentMismatch", (2,)),
        ("another saver", "ArgumentMismatch", (1,)),
        ("no such saver", "ArgumentMismatch", (0, 1, 2, 3)),
        ("no path", "ArgumentMismatch", (0, 1, 2, 3)),
    ],
)
def test_a_failed_save_leaves_the_former(
    world: rankdrill.World, path: pathlib.Path, case: str, kind: str, ranks: tuple[int, ...]
) -> None:
    def body() -> Any:
        save(path, 1)
        failed = wrong(case, path)
        seen = load(path)
        files = os.listdir(path.parent)
        dist.barrier()
        save(path, 2)
        return (failed, files), seen, load(path)

    got = world.run(body).unwrap()
    failed, files = all_alike([one[0] for one in got])
    assert (failed.kind, failed.ranks, files) == (kind, ranks, ["last.pt"])
    assert [one[1:] for one in got] == list(zip(loaded(1), loaded(2), strict=True))


FILE_STRIKES = [
    f"full at file.open on {ASIDE!r}",
    f"full at file.write on {ASIDE!r}",
    f"full at file.fsync on {ASIDE!r}",
    f"torn after file.fsync on {ASIDE!r}",
    f"missing after file.fsync on {ASIDE!r}",
    "full at file.replace",
    "denied at file.replace",
    f"missing at file.replace on {ASIDE!r}",
    "denied at file.open on '*.part'",
]


@pytest.mark.parametrize("strike", FILE_STRIKES)
def test_a_disk_that_fails_fails_all_ranks(world: rankdrill.World, path: pathlib.Path, strike: str) -> None:
    plan = rankdrill.Plan.parse("rank 2: " + strike.replace("'", '"'))

    def body() -> Any:
        failed = attempt(save, path, 2, group_dst=2)
        files = os.listdir(path.parent)
        return (failed.kind, failed.ranks, files), load(path)

    world.run(save, path, 1).unwrap()
    got = world.run(body, plan=plan).unwrap()
    kind = "EncodeError" if strike.startswith("torn") else "StorageError"
    assert all_alike([one[0] for one in got]) == (kind, (2,), ["last.pt"])
    assert [one[1] for one in got] == loaded(1)


# ---------------------------------------------------------------------------------------------- ranks that die

SAVER_DIES = [
    f"before file.open on {ASIDE!r}",
    f"after file.open on {ASIDE!r}",
    f"after file.write on {ASIDE!r}",
    f"before file.fsync on {ASIDE!r}",
    f"after file.fsync on {ASIDE!r}",
    "before file.replace #1",
    "after file.replace #1",
    "after file.fsync #2",
]


@pytest.mark.parametrize("when", thinned(SAVER_DIES, 2))
def test_a_saver_that_is_killed_leaves_a_whole_checkpoint(path: pathlib.Path, when: str) -> None:
    plan = rankdrill.Plan.parse("rank 0: kill " + when.replace("'", '"'))
    with rankdrill.World(4) as world:
        world.run(save, path, 1).unwrap()
        outcome = world.run(lambda: attempt(save, path, 2), plan=plan)
        lost: Raised = all_alike(outcome.unwrap()[1:])
        assert (lost.kind, lost.ranks) == ("PeerLost", (0,))
        renamed = when in ("after file.replace #1", "after file.fsync #2")
        left = [name for name in in_directory(path) if name != "last.pt"]
        assert len(left) == (0 if renamed or when.startswith("before file.open") else 1)

        assert world.run(load, path).unwrap() == loaded(2 if renamed else 1)
        world.run(save, path, 3).unwrap()
        assert world.run(load, path).unwrap() == loaded(3)
    assert in_directory(path) == ["last.pt"]


@pytest.mark.parametrize("when", ["before object.save", "after object.save", "after collective.* #1"])
def test_any_other_rank_that_is_killed_leaves_the_former(path: pathlib.Path, when: str) -> None:
    def body() -> Raised | None:
        result: Raised | None = attempt(save, path, 2)
        return result

    with rankdrill.World(4) as world:
        world.run(save, path, 1).unwrap()
        outcome = world.run(body, plan=rankdrill.Plan.parse(f"rank 2: kill {when}"))
        got = outcome.unwrap()
        lost: Raised = all_alike([got[rank] for rank in (0, 1, 3)])
        assert (lost.kind, lost.ranks) == ("PeerLost", (2,))
        assert in_directory(path) == ["last.pt"]
        assert world.run(load, path).unwrap() == loaded(1)
