"""The same over NCCL."""

from __future__ import annotations

import pytest
import torch
from scoreboard import gather_scores
from scoreboard_harness import recorded


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
@pytest.mark.ranks(2, backend="nccl", device="cuda")
def test_recorded_scores_reach_every_rank_over_nccl(rank: int) -> None:
    by_rank = recorded()[:2]
    assert gather_scores(by_rank[rank]) == by_rank
