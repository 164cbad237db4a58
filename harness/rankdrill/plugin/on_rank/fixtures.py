"""The plugin of the rank's session: what a test sees on its rank, and the hooks that tie the session to rankdrill."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import ProcessGroup, Store

from rankdrill.errors import UsageError
from rankdrill.plugin.commands import Worker
from rankdrill.plugin.on_rank.protocol import OpenTest
from rankdrill.plugin.on_rank.region import Region
from rankdrill.worlds.context import RankContext

__all__ = ["Rank", "rank_plugin"]


@dataclass(frozen=True, eq=False, repr=False)
class Rank(int):
    """This rank, as the fixture `rank` gives it: its global rank, a number as any other, that knows more of itself.

    `index` is that number again, a plain one, of `world_size`, `group` the default process group, None in a world
    without one until the test has made it, `device` what its tensors belong on, `store` a key-value store shared by
    the ranks. Where it is sent or stored, the number goes.
    """

    index: int
    world_size: int
    device: torch.device
    store: Store

    def __new__(cls, index: int, world_size: int, device: torch.device, store: Store) -> Self:
        return super().__new__(cls, index)

    @property
    def group(self) -> ProcessGroup | None:
        """The default process group."""
        return dist.group.WORLD

    def __repr__(self) -> str:
        return f"<rank {self.index} of {self.world_size}>"

    __str__ = int.__repr__

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (self.index,)

    def barrier(self) -> None:
        """Wait for all ranks of the world."""
        __tracebackhide__ = True
        if not dist.is_initialized():
            raise UsageError("rank.barrier() needs a process group; this world has none until the test makes one")
        dist.barrier()


def rank_plugin(
    context: RankContext,
    region: Region,
    open_test: Callable[[], OpenTest | None],
    worker: Worker | None,
) -> ModuleType:
    """A pytest plugin of plain functions, for pytest binds fixture methods to test instances.

    `open_test` says which test has begun on this rank. `worker` is None where pytest-xdist is not in use.
    """
    plugin = ModuleType("rankdrill-rank")
    vars(plugin).update(_fixtures(context, open_test))
    if worker is not None:
        vars(plugin).update(_fixtures_of_xdist(worker))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
        test = open_test()
        if test is None:
            return None
        test.drive()
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, object, object]:
        __tracebackhide__ = True
        if fixturedef.scope == "function":
            region.open(request.node)
            return (yield)
        with region.outlived(request):
            return (yield)

    def pytest_fixture_post_finalizer(fixturedef: Any) -> None:
        if fixturedef.scope != "function":
            region.forget()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
        __tracebackhide__ = True  # of what a hook raises around the body, as pytest does of an unclosed file
        region.open(item)
        return (yield)

    def pytest_runtest_logreport(report: Any) -> None:
        test = open_test()
        if test is not None:
            test.heard(report)

    def pytest_warning_recorded(warning_message: warnings.WarningMessage, when: str) -> None:
        test = open_test()
        if test is not None and when == "runtest":
            test.warned(warning_message)

    vars(plugin).update(
        pytest_runtest_protocol=pytest_runtest_protocol,
        pytest_fixture_setup=pytest_fixture_setup,
        pytest_fixture_post_finalizer=pytest_fixture_post_finalizer,
        pytest_runtest_call=pytest_runtest_call,
        pytest_runtest_logreport=pytest_runtest_logreport,
        pytest_warning_recorded=pytest_warning_recorded,
    )
    return plugin


def _fixtures(context: RankContext, open_test: Callable[[], OpenTest | None]) -> dict[str, Any]:
    @pytest.fixture(scope="session")
    def rank() -> Rank:
        """This rank, an int: index, world_size, group, device, store, barrier()."""
        return Rank(context.index, context.world_size, context.device, context.store)

    @pytest.fixture(scope="session")
    def world_size() -> int:
        """The number of ranks of this world: where a parameter says the same, it goes before."""
        return context.world_size

    def shared() -> Path:
        test = open_test()
        assert test is not None
        return _made(context, Path(test.place.tmp_path))

    @pytest.fixture
    def tmp_path() -> Path:
        """A temporary directory of this test, the same one on all its ranks."""
        return shared()

    @pytest.fixture
    def rank_tmp_path() -> Path:  # does not ask for `tmp_path`, which the user's own may be made of it
        """A temporary directory of this test and this rank alone."""
        return _made(context, shared() / f"rank-{context.index}")

    return {"rank": rank, "world_size": world_size, "tmp_path": tmp_path, "rank_tmp_path": rank_tmp_path}


def _fixtures_of_xdist(worker: Worker) -> dict[str, Any]:
    # The plugin itself distributes tests, which is over once they are on ranks.
    @pytest.fixture(scope="session")
    def worker_id() -> str:
        """The worker of pytest-xdist whose test this is, "master" where none is; the same on all ranks."""
        return worker.worker_id

    @pytest.fixture(scope="session")
    def testrun_uid() -> str:
        """The name that pytest-xdist has given to the run; the same on all ranks."""
        return worker.testrun_uid

    return {"worker_id": worker_id, "testrun_uid": testrun_uid}


def _made(context: RankContext, path: Path) -> Path:
    with context.boundary.closed():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
