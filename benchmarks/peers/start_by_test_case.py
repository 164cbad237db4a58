"""Four ranks and one `all_reduce` on torch's `MultiProcessTestCase`; prints the seconds of each repetition.

With `death` as a second argument: the seconds from the death of a rank to the end of its test.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase

RANKS = 4
NOTE = "RANK_DIED_AT"


class Peer(MultiProcessTestCase):
    @property
    def world_size(self) -> int:
        return RANKS

    def setUp(self) -> None:
        super().setUp()
        self._spawn_processes()

    def _start(self) -> None:
        dist.init_process_group("gloo", init_method=f"file://{self.file_name}", rank=self.rank, world_size=RANKS)

    def test_one_all_reduce(self) -> None:
        self._start()
        dist.all_reduce(torch.ones(1))
        dist.barrier()

    def test_death(self) -> None:
        self._start()
        dist.barrier()
        if self.rank == RANKS - 1:
            Path(os.environ[NOTE]).write_text(str(time.monotonic_ns()))
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()


def once() -> float:
    began = time.monotonic()
    result = unittest.TestResult()
    Peer("test_one_all_reduce").run(result)  # type: ignore[no-untyped-call]
    assert result.wasSuccessful(), result.errors
    return time.monotonic() - began


def once_death() -> float:
    with tempfile.TemporaryDirectory() as directory:
        note = Path(directory) / "note"
        os.environ[NOTE] = str(note)
        Peer("test_death").run(unittest.TestResult())  # type: ignore[no-untyped-call]
        return (time.monotonic_ns() - int(note.read_text())) / 1e9


if __name__ == "__main__":
    measure = once_death if "death" in sys.argv else once
    print(json.dumps([measure() for _ in range(int(sys.argv[1]))]))
