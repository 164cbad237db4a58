"""What a test sees on its rank: the fixtures `rank`, `tmp_path` shared by the ranks, and `rank_tmp_path`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import ProcessGroup, Store

from rankdrill.plugin.phase import TestPlace
from rankdrill.worlds.context import RankContext

__all__ = ["Rank", "RankFixtures"]


@dataclass(frozen=True)
class Rank:
    """This rank, as the fixture `rank` gives it.

    `index` is its global rank of `world_size`, `group` the default process group, `device` what its tensors belong
    on, `store` a key-value store shared by the ranks of this world.
    """

    index: int
    world_size: int
    group: ProcessGroup
    device: torch.device
    store: Store

    def __repr__(self) -> str:
        return f"<rank {self.index} of {self.world_size}>"

    def barrier(self) -> None:
        """Wait for all ranks of the world."""
        dist.barrier()


class RankFixtures:
    """The state behind the fixtures of the rank's session. `place` is the test being run."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self.place: TestPlace | None = None
        self.warned: list[warnings.WarningMessage] = []

    def plugin(self) -> ModuleType:
        """A pytest plugin with these fixtures, as plain functions: pytest binds fixture methods to test instances."""

        @pytest.fixture(scope="session")
        def rank() -> Rank:
            """This rank: index, world_size, group, device, store, barrier()."""
            return self._rank()

        @pytest.fixture
        def tmp_path() -> Path:
            """A temporary directory of this test, the same one on all its ranks."""
            assert self.place is not None
            return self._made(Path(self.place.tmp_path))

        @pytest.fixture
        def rank_tmp_path(tmp_path: Path) -> Path:
            """A temporary directory of this test and this rank alone."""
            return self._made(tmp_path / f"rank-{self._context.index}")

        def pytest_warning_recorded(warning_message: warnings.WarningMessage) -> None:
            self.warned.append(warning_message)

        plugin = ModuleType("rankdrill-rank")
        for part in (rank, tmp_path, rank_tmp_path, pytest_warning_recorded):
            setattr(plugin, part.__name__, part)
        return plugin

    def _rank(self) -> Rank:
        context = self._context
        group = dist.group.WORLD
        assert group is not None
        return Rank(context.index, context.world_size, group, context.device, context.store)

    def _made(self, path: Path) -> Path:
        with self._context.boundary.closed():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path
