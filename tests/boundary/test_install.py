"""Putting all boundaries in place, and what a forked child inherits of it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from rankdrill import World
from rankdrill.boundary import Boundary, install


def fork_and_write(directory: str) -> int:
    """Write a file here and, before that, a hundred in a child; returns the child's exit code."""
    child = os.fork()
    if child == 0:
        try:
            for index in range(100):
                Path(directory, f"child{index}").write_text("x")
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    Path(directory, "parent").write_text("x")
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_takes_no_steps(tmp_path: Path) -> None:
    with World(1) as world:
        outcome = world.run(fork_and_write, str(tmp_path))
        assert outcome.unwrap() == [0]
    taken = [f"{record.step.op} {Path(record.step.target).name}" for record in outcome.ranks[0].ledger]
    assert taken == ["open parent", "write parent"]
    assert len(os.listdir(tmp_path)) == 101


def test_installing_twice_and_undoing_both() -> None:
    before = os.stat, torch.empty
    first, second = install(Boundary()), install(Boundary())
    second()
    first()
    assert (os.stat, torch.empty) == before
