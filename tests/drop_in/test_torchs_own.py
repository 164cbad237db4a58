"""Torch's own tests of its object gathers, and its own callers of them, with rankdrill's in their place."""

from __future__ import annotations

import os
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import checkpoint

import rankdrill
from rankdrill import gathers
from tests.gathers.attempts import all_alike

RANKS = 4
dcp: Any = checkpoint
TESTS = (
    "test_all_gather_object_default_pg",
    "test_all_gather_object_subgroup",
    "test_gather_object",
    "test_gather_object_subgroup",
)
REPLACED = ("all_gather_object", "gather_object")


@pytest.fixture(scope="module")
def world() -> Iterator[rankdrill.World]:
    with rankdrill.World(RANKS) as world:
        yield world


@contextmanager
def in_torchs_place() -> Iterator[list[str]]:
    """Whoever calls torch's gathers calls rankdrill's; the names of those that were called."""
    called: list[str] = []
    distributed: Any = dist
    before = {name: getattr(distributed, name) for name in REPLACED}

    def standing_in(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> None:
            called.append(name)
            getattr(gathers, name)(*args, **kwargs)

        return call

    for name in REPLACED:
        setattr(distributed, name, standing_in(name))
    try:
        yield called
    finally:
        for name in REPLACED:
            setattr(distributed, name, before[name])


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_of_the_installed_torch(world: rankdrill.World, name: str) -> None:
    def body() -> Any:
        os.environ.update(BACKEND="gloo", WORLD_SIZE=str(RANKS))
        from torch.testing._internal.common_utils import TestCase
        from torch.testing._internal.distributed.distributed_test import DistributedTest

        bases: Any = TestCase, DistributedTest._DistTestBase
        own: Any = type("Own", bases, {"rank": dist.get_rank(), "world_size": RANKS})
        result = unittest.TestResult()
        with in_torchs_place() as called:
            own(name).run(result)
        return result.testsRun, result.failures + result.errors, result.skipped, len(called)

    ran, failed, skipped, calls = all_alike(world.run(body, deadline=120).unwrap())
    assert (ran, failed, skipped) == (1, [], [])
    assert calls >= 3, "once for each debug level"


def test_checkpoints_of_torch(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        with in_torchs_place() as called:
            saved: dict[str, Any] = {
                "mine": torch.full((4,), rank),
                f"of {rank}": {"step": rank},
                "all": torch.arange(1000),
            }
            dcp.save(saved, checkpoint_id=tmp_path)
            zeros = torch.zeros(1000, dtype=torch.int64)
            loaded: dict[str, Any] = {f"of {rank}": {"step": -1}, "all": zeros}
            dcp.load(loaded, checkpoint_id=tmp_path)
        return bool((loaded["all"] == saved["all"]).all()), loaded[f"of {rank}"] == {"step": rank}, sorted(set(called))

    whole, own, called = all_alike(world.run(body, deadline=120).unwrap())
    assert whole
    assert own
    assert set(called) <= set(REPLACED)
    assert called, "torch gathers in another way now"


def test_a_checkpoint_that_one_rank_cannot_write_is_told_to_all(world: rankdrill.World, tmp_path: Path) -> None:
    """What is gathered then are exceptions with their tracebacks."""

    def body() -> Any:
        class Refused:
            def __reduce__(self) -> Any:
                raise TypeError("not to be saved")

        mine: Any = Refused() if dist.get_rank() == 2 else 1
        with in_torchs_place(), pytest.raises(dcp.CheckpointException) as failed:
            dcp.save({f"of {dist.get_rank()}": mine}, checkpoint_id=tmp_path)
        return sorted(failed.value.failures), "not to be saved" in str(failed.value)

    assert all_alike(world.run(body, deadline=120).unwrap()) == ([2], True)


def test_the_wrapper_that_checkpoints_gather_with(world: rankdrill.World) -> None:
    def body() -> Any:
        from torch.distributed.checkpoint.utils import _DistWrapper

        rank = dist.get_rank()
        group = dist.new_group([1, 2, 3])
        told = []
        with in_torchs_place():
            everybody: Any = _DistWrapper(None, True, 1)
            told += [everybody.gather_object(rank), everybody.all_gather_object({"rank": rank})]
            told += [everybody.reduce_scatter("step", lambda: rank, lambda ranks: [10 * each for each in ranks])]
            if rank:
                some: Any = _DistWrapper(group, True, 0)
                told += [some.all_gather_object(rank)]
        return told

    everybody = [{"rank": rank} for rank in range(RANKS)]
    for rank, told in enumerate(world.run(body, deadline=120).unwrap()):
        gathered = list(range(RANKS)) if rank == 1 else None
        assert told == [gathered, everybody, 10 * rank, *([[1, 2, 3]] if rank else [])]
