"""Shared-memory segments become steps."""

from __future__ import annotations

import secrets
from multiprocessing import shared_memory
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from tests.faults.here import rank_here


def test_a_segment_from_first_to_last() -> None:
    name = f"rankdrill-test-{secrets.token_hex(8)}"
    with rank_here() as here:
        made = SharedMemory(name, create=True, size=4096)
        seen = shared_memory.SharedMemory(name=name)
        assert made.buf is not None
        assert seen.buf is not None
        made.buf[0] = 7
        assert seen.buf[0] == 7
        seen.close()
        made.close()
        made.close()
        made.unlink()
        assert here.steps == ["shm.create", "shm.attach", "shm.close", "shm.close", "shm.unlink"]
        assert {record.step.target for record in here.view} == {f"/dev/shm/{name}"}
        assert next(iter(here.view)).step.nbytes == 4096


def test_a_segment_without_a_name_is_recorded_by_the_name_it_gets() -> None:
    with rank_here() as here:
        made = SharedMemory(create=True, size=100)
        (record,) = here.view
        assert record.step.target == f"/dev/shm/{made.name}"
        made.close()
        made.unlink()


def test_a_taken_name_is_not_the_callers_trouble_if_it_gave_none() -> None:
    with rank_here("rank 0: collision before shm.create") as here:
        made = SharedMemory(create=True, size=100)
        assert here.fired == (1,)
        left_over = Path(next(iter(here.view)).step.target)
        assert left_over.name != made.name
    left_over.unlink()
    made.close()
    made.unlink()


def test_what_cannot_be_fails_as_ever() -> None:
    with rank_here() as here:
        with pytest.raises(FileNotFoundError):
            SharedMemory(f"rankdrill-test-{secrets.token_hex(8)}")
        with pytest.raises(ValueError, match="size"):
            SharedMemory(create=True, size=0)
        with pytest.raises(ValueError, match="'name' can only be None"):
            SharedMemory()
        assert here.steps == ["shm.attach", "shm.create"]


def test_taking_it_away_restores_the_class() -> None:
    before = {name: vars(SharedMemory)[name] for name in ("__init__", "close", "unlink")}
    with rank_here():
        assert vars(SharedMemory)["close"] is not before["close"]
    assert {name: vars(SharedMemory)[name] for name in before} == before
