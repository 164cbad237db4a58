"""A test for each planted mistake, as a user would write it; collected by `on_ranks` alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from benchmarks.planting import everydays, unusuals
from benchmarks.planting.mistake import MISTAKES
from hypothesis import given, settings

from rankdrill.worlds.context import RankContext
from rankdrill_strategies import per_rank, picklables, same

PLANTED = (everydays, unusuals)  # as they are imported
HERE = Path(os.environ["RANKDRILL_FINDING"])
ASKED = json.loads((HERE / "asked.json").read_text())


@pytest.mark.ranks(2)
@pytest.mark.parametrize("name", ASKED["mistakes"])
@settings(max_examples=ASKED["limit"], database=None, deadline=None)
@given(payloads=per_rank(picklables()))
def test_everyone_gets_everything(rank: RankContext, name: str, payloads: list[Any]) -> None:
    """Torch's gather is right, and the mistake is made of what it gives."""
    received: list[Any] = [None] * rank.world_size
    dist.all_gather_object(received, payloads[rank.index])
    try:
        shows = not same(MISTAKES[name].gather(received), payloads)
    except Exception:  # a gather that raises has been found out
        shows = True
    if rank.index == 0:
        with (HERE / f"{ASKED['mistakes'].index(name)}.txt").open("a") as told:
            told.write("-+"[shows])
    assert not shows
