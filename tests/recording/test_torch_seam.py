"""What recording rests on in torch, beside the boundary, is there and means what it must."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c
from torch.distributed import distributed_c10d as c10d

from rankdrill.boundary.methods import METHODS
from rankdrill.recording import torch_seam
from tests.torch_can import end_group


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Any]:
    """The default group of a world of one, not wrapped."""
    store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=30))
    yield dist.group.WORLD
    end_group()


def test_where_torch_keeps_a_group(group: Any) -> None:
    world = c10d._world
    for table in (world.pg_map, world.pg_names, world.pg_backend_config, world.pg_to_tag, world.pg_group_ranks):
        assert group in table
    assert world.pg_group_ranks[group] == {0: 0}
    assert c._resolve_process_group(group.group_name) is group
    assert world.default_pg is group


def test_the_store_that_ranks_met_over(group: Any) -> None:
    store = torch_seam.store_of(group)
    assert bytes(store.compare_set("a name", "", "one")) == b"one"
    assert bytes(store.compare_set("a name", "", "other")) == b"one"


def test_the_backend_and_what_it_has_counted(group: Any) -> None:
    assert "gloo" in torch_seam.backend_of(group)
    before = torch_seam.calls_so_far(group)
    dist.all_reduce(torch.ones(1))
    assert torch_seam.calls_so_far(group) == before + 1


def test_calls_are_methods_of_the_class(group: Any) -> None:
    assert type(group) is dist.ProcessGroup
    assert "allreduce" in METHODS
    patches = list(torch_seam.going_to({}, METHODS, lambda: True))
    assert {patch.name for patch in patches} >= {"allreduce", "broadcast", "barrier", "send", "recv"}
