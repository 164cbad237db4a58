"""Test files with long paths: reports show them, and what is told by the source is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

SOURCE = """
import pytest, torch, torch.distributed as dist

@pytest.mark.ranks(3)
def test_of_a_step(rank):
    for step in range(3):
        dist.all_reduce(torch.ones(3))
        if rank == 1 and step == 1:
            continue
        dist.broadcast(torch.ones(3), 0)
"""


def test_what_goes_by_the_source_is_told_of_a_file_with_a_long_path(run: Run, pytester: pytest.Pytester) -> None:
    deep = pytester.path.joinpath(*(f"a_directory_that_has_a_long_name_{each}" for each in range(8)))
    deep.mkdir(parents=True)
    (deep / "test_far_down.py").write_text(SOURCE)
    story = run("", str(deep)).failure("test_of_a_step")
    assert "goes past it by `if rank == 1 and step == 1`" in story, story
    assert "…" not in story
