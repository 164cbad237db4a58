"""What ranks are told of each other's scores."""

from __future__ import annotations

import pytest
from hypothesis import given
from scoreboard import best, gather_scores
from scoreboard_harness import LOST, recorded
from scoreboard_strategies import scores

from rankdrill_strategies import per_rank, worlds


@pytest.mark.ranks(3)
def test_recorded_scores_reach_every_rank(rank: int) -> None:
    by_rank = recorded()
    assert gather_scores(by_rank[rank]) == by_rank
    assert best(by_rank[rank]) == ("gsm8k", 0.845)


@pytest.mark.ranks(worlds(min_ranks=2))
@given(by_rank=per_rank(scores()))
def test_drawn_scores_reach_every_rank(rank: int, by_rank: list[dict[str, float]]) -> None:
    assert gather_scores(by_rank[rank]) == by_rank


@pytest.mark.ranks(3, faults=[LOST])
def test_who_outlives_a_rank_is_told_and_does_not_wait(rank: int) -> None:
    with pytest.raises(RuntimeError):
        gather_scores({"rank": float(rank)})
