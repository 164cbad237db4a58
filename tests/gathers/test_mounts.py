"""What lies in a file of this machine is mapped, what lies elsewhere is read."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_via_filesys
from rankdrill.gathers.encoding.coding import PICKLED
from rankdrill.gathers.encoding.wire import encode
from rankdrill.gathers.host import mounts
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.storage import files
from tests.gathers.attempts import TIMEOUT_S, replaced

NONCE = bytes(range(16))
NUMBERS = 300_000  # 1.2 MB of float32


@pytest.mark.parametrize(("directory", "local"), [("/dev/shm", True), ("/proc/self", False)])
def test_what_kind_of_file_system_it_is(directory: str, local: bool) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    assert mounts.is_local(descriptor) is local
    os.close(descriptor)
    assert mounts.is_local(descriptor) is False


@pytest.mark.parametrize("local", [True, False])
def test_what_was_read_is_independent_and_outlives_the_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    monkeypatch.setattr(files, "is_local", lambda descriptor: local)
    offered = files.offer(str(tmp_path), encode([torch.ones(NUMBERS), torch.zeros(3)]), NONCE, identify())
    before = len(os.listdir("/proc/self/fd"))
    (one, few), (other, _) = (files.read(offered, NONCE, 0.0).load(PICKLED) for _ in range(2))
    assert (str(tmp_path) in pathlib.Path("/proc/self/maps").read_text()) is local
    one += 1
    few += 1
    files.remove(offered.path)
    assert (one.sum().item(), few.tolist(), other.sum().item()) == (2 * NUMBERS, [1, 1, 1], NUMBERS)
    del one, few, other
    assert str(tmp_path) not in pathlib.Path("/proc/self/maps").read_text()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("local", [True, False])
def test_every_rank_has_tensors_of_its_own(world: rankdrill.World, tmp_path: pathlib.Path, local: bool) -> None:
    def body() -> Any:
        with replaced(files, "is_local", lambda descriptor: local):
            tensors = all_gather_via_filesys(torch.full((NUMBERS,), dist.get_rank()), tmp_path, timeout=TIMEOUT_S)
        for tensor in tensors:
            tensor += 10 * dist.get_rank()
        dist.barrier()
        return [tensor.unique().tolist() for tensor in tensors]

    for rank, seen in enumerate(world.run(body).unwrap()):
        assert seen == [[10 * rank + one] for one in range(4)]
    assert list(tmp_path.iterdir()) == []
