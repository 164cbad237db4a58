"""A test whose ranks all raise because one of them failed: the headline is that one's error."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugin.conftest import Ran


def test_the_headline_is_what_the_rank_raised_that_failed(run: Callable[..., Ran]) -> None:
    ran = run("""
import torch.distributed.checkpoint as dcp

@pytest.mark.ranks(3)
def test_it(tmp_path, rank):
    dcp.save({"a": torch.ones(2)}, checkpoint_id=tmp_path)
    more = {"b": torch.ones(2)} if rank.index == 1 else {}
    dcp.load({"a": torch.ones(2), **more}, checkpoint_id=tmp_path)
""")
    ran.result.assert_outcomes(failed=1)
    assert "rank 1 failed: RuntimeError: Missing key in checkpoint state_dict: b." in ran.screen
    assert "ranks 0, 2 raised CheckpointException, for what rank 1 raised" in ran.screen
