"""Groups that are not gloo's or NCCL's: they work, or say in one line why not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt

NO_STORE = "the ranks of this group (fake) share no store to meet over: gathers are between processes"

FAKE = """
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from rankdrill.errors import UsageError
from rankdrill.gathers import all_gather

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
try:
    all_gather(1)
except UsageError as error:
    print(error)
"""
THREADED = """
import unittest
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiThreadedTestCase
from rankdrill.gathers import all_gather

class Threaded(MultiThreadedTestCase):
    world_size = 2

    def setUp(self):
        super().setUp()
        self._spawn_threads()

    def test(self):
        gathered = all_gather(dist.get_rank())
        if dist.get_rank() == 0:
            print(gathered)

unittest.main(argv=["threaded"])
"""


def printed(source: str) -> list[str]:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", source], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.nightly
def test_a_group_without_processes_is_refused() -> None:
    (told,) = printed(FAKE)
    assert told.startswith(NO_STORE)


def test_ranks_that_are_threads() -> None:
    assert printed(THREADED) == ["[0, 1]"]


def test_a_backend_of_somebody_elses_is_gone_around() -> None:
    def body() -> Any:
        class Own(dist.ProcessGroup):
            """Does nothing, and does not know its name."""

            def getBackendName(self) -> str:  # noqa: N802
                return "own"

        make: Any = Own
        register: Any = dist.Backend.register_backend
        register("own", lambda store, rank, size, timeout: make(rank, size), devices=["cpu"])
        group = dist.new_group(backend="own")
        return all_gather(dist.get_rank(), group=group, timeout=TIMEOUT_S)

    with rankdrill.World(2, contracts=False) as world:
        assert all_alike(world.run(body).unwrap()) == [0, 1]


@pytest.mark.parametrize("switch", ["MDETR_CPU_REDUCE", "force_cpu"])
def test_a_switch_on_one_rank_is_known_to_all(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MDETR_CPU_REDUCE", raising=False)

    def body() -> Any:
        import os

        one = dist.get_rank() == 1
        if one and switch != "force_cpu":
            os.environ[switch] = "1"
        failed = attempt(all_gather, 1, force_cpu=one and switch == "force_cpu", timeout=TIMEOUT_S)
        return failed.kind, "as asked" in failed.text

    with rankdrill.World(2) as world:
        assert all_alike(world.run(body).unwrap()) == ("ArgumentMismatch", True)
