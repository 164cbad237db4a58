"""What is told of who waits: for whom in the end, and nothing else that went by."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill import World

SOON = 1.5


def test_an_error_that_was_caught_long_before_is_not_told_of_who_waits(two: World, tmp_path: Path) -> None:
    def body(directory: str) -> None:
        with suppress(FileNotFoundError):
            Path(directory, "cache.json").read_text()
        if dist.get_rank() == 1:
            time.sleep(1000)
        dist.barrier()

    outcome = two.run(body, str(tmp_path), deadline=SOON)
    assert (outcome.culprits, outcome.victims) == ((1,), (0,))
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    told = [str(error) for error in caught.value.exceptions]
    assert told[1].startswith("rank 0 waits in collective.barrier #")
    assert "cache.json" not in told[1]
    assert not any("FileNotFoundError" in line for line in (*told, outcome.summary()))
