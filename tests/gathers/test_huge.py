"""A payload whose size does not fit in 31 bits."""

from __future__ import annotations

import psutil
import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_object
from rankdrill.gathers.agreement.channel import LINE_VARIABLE

HUGE = (1 << 31) + 12_345
NEEDED_BYTES = 5 * HUGE


@pytest.mark.nightly
@pytest.mark.skipif(
    psutil.virtual_memory().available < NEEDED_BYTES, reason=f"needs {NEEDED_BYTES >> 30} GiB of memory"
)
@pytest.mark.parametrize("line", ["local", "gloo"])
def test_more_than_two_gibibytes(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv(LINE_VARIABLE, line)

    def body() -> tuple[int, list[int], int]:
        mine = torch.zeros(HUGE, dtype=torch.uint8) if dist.get_rank() == 1 else torch.zeros(1, dtype=torch.uint8)
        mine[-1] = 7
        received: list[torch.Tensor] = [mine, mine]
        all_gather_object(received, mine, timeout=150)
        return len(received[0]), [int(received[1][at]) for at in (0, HUGE // 2, -1)], len(received[1])

    with rankdrill.World(2) as world:
        assert world.run(body, deadline=200).unwrap() == [(1, [0, 0, 7], HUGE)] * 2
