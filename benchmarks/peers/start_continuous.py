"""Four ranks and one `all_reduce` on torch's `MultiProcContinuousTest`; prints the seconds of each repetition.

The first includes starting the processes.
"""

from __future__ import annotations

import json
import sys
import time
import unittest

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcContinuousTest


class Peer(MultiProcContinuousTest):
    world_size = 4

    @classmethod
    def backend_str(cls) -> str:
        return "gloo"

    @classmethod
    def device_type(cls) -> str:
        return "cpu"

    def test_one_all_reduce(self) -> None:
        dist.all_reduce(torch.ones(1))


def once() -> float:
    began = time.monotonic()
    result = unittest.TestResult()
    Peer("test_one_all_reduce").run(result)  # type: ignore[no-untyped-call]
    assert result.wasSuccessful(), result.errors
    return time.monotonic() - began


if __name__ == "__main__":
    Peer.setUpClass()  # type: ignore[no-untyped-call]
    try:
        print(json.dumps([once() for _ in range(int(sys.argv[1]))]))
    finally:
        Peer.tearDownClass()  # type: ignore[no-untyped-call]
