"""What is told of who waits: for whom in the end, and nothing else that went by."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.ledger import LedgerReader, LedgerWriter
from rankdrill.step import Kind, Step
from rankdrill.worlds import Status
from rankdrill.worlds.rank_outcome import RankOutcome
from rankdrill.worlds.victims import victim_lines

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


def test_what_failed_on_the_way_out_is_not_where_a_victim_was(tmp_path: Path) -> None:
    """Handlers for the end of a process look for files as well."""
    lost = RuntimeError("Connection closed by peer")
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=2) as ledger:
        ledger.fail(ledger.begin(Step(Kind.COLLECTIVE, "broadcast", "default", sequence=1)), lost)
        ledger.fail(ledger.begin(Step(Kind.FILE, "open", "/usr/lib/python.zip")), FileNotFoundError())
    view = LedgerReader(tmp_path / "ledger").view()
    (line,) = victim_lines([RankOutcome(0, Status.RAISED, exception=lost, ledger=view)])
    assert "[in collective.broadcast #1 on 'default'" in line
