"""Putting all boundaries in place, and what a forked child inherits of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.boundary import Boundary, Prepared, install
from rankdrill.ledger import LedgerReader, LedgerWriter


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


def test_what_is_prepared_for_forks_is_not_the_process_own_and_can_be_withdrawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    took: Any = ModuleType("took_it_before")
    took.stat = os.stat
    monkeypatch.setitem(sys.modules, took.__name__, took)
    before = os.stat, torch.empty, vars(dist)["Reducer"]
    prepared = Prepared()
    try:
        assert before[0] not in (os.stat, took.stat)
        child = os.fork()
        if child == 0:
            ledger = LedgerWriter(tmp_path / "ledger", rank=0, world_size=1)
            with prepared.take(ledger, ignored=[]).recording():
                os.stat(tmp_path)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        os.stat(tmp_path)
    finally:
        prepared.withdraw()
    assert (os.stat, torch.empty, vars(dist)["Reducer"]) == before
    assert took.stat is before[0]
    (record,) = LedgerReader(tmp_path / "ledger").view().records
    assert (record.step.op, record.step.target) == ("stat", str(tmp_path))
