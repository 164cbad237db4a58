"""Strikes at memory: errors raised at a step, and a real limit."""

from __future__ import annotations

import gc
import mmap
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rankdrill.faults.limits import address_space
from rankdrill.worlds import Outcome
from tests.faults.here import rank_here

MIB = 1 << 20


@pytest.mark.parametrize(
    ("op", "reserve"),
    [
        ("empty", lambda: torch.empty(1000)),
        ("zeros", lambda: torch.zeros((10, 100))),
        ("ones", lambda: torch.ones(size=(10, 100))),
        ("full", lambda: torch.full((1000,), 1.0)),
        ("cat", lambda: torch.cat([torch.arange(1000)] * 2)),
        ("stack", lambda: torch.stack([torch.arange(1000)] * 2)),
        ("clone", lambda: torch.clone(torch.arange(1000))),
        ("empty_like", lambda: torch.empty_like(torch.arange(1000))),
        ("zeros_like", lambda: torch.zeros_like(torch.arange(1000))),
        ("ones_like", lambda: torch.ones_like(torch.arange(1000))),
        ("resize_", lambda: torch.arange(1).resize_(1000)),
        ("mmap", lambda: mmap.mmap(-1, 4096).close()),
    ],
)
def test_out_of_memory_at_a_step(op: str, reserve: Callable[[], object]) -> None:
    with rank_here(f"rank 0: oom at memory.{op}") as here:
        with pytest.raises(MemoryError, match=rf"memory\.{op}"):
            reserve()
        assert here.fired == (1,)
        reserve()
    told = r"^CUDA out of memory\. Tried to allocate \d+ bytes \(planned\)$"
    with rank_here(f"rank 0: cuda_oom at memory.{op}"), pytest.raises(torch.cuda.OutOfMemoryError, match=told):
        reserve()


def test_out_of_memory_while_pickling() -> None:
    with rank_here("rank 0: oom at object.dumps"), pytest.raises(MemoryError):
        pickle.dumps(1)


def reserve_under_limit() -> list[str]:
    """What happens at 16 MiB less, and at 512 MiB more, than there may be."""
    found = []
    pickle.dumps("here the limit begins")
    for reserve in (lambda: bytearray(16 * MIB), lambda: bytearray(512 * MIB), lambda: torch.empty(512 * MIB)):
        try:
            reserve()
            found.append("fits")
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_AS)


def test_a_limit_is_real_and_ends_with_the_run(run: Callable[..., Outcome]) -> None:
    (before,) = run(1, "", limits).unwrap()
    (found,) = run(1, f"rank 0: limit({128 * MIB}) before object.dumps", reserve_under_limit).unwrap()
    assert found[0] == "fits"
    assert found[1].startswith("MemoryError")
    assert found[2].startswith("RuntimeError")
    assert "alloc" in found[2]
    (after,) = run(1, "", limits).unwrap()
    assert after == before


def test_address_space_is_what_is_reserved_and_not_what_is_used() -> None:
    before = address_space()
    with mmap.mmap(-1, 512 * MIB):  # of which no page is ever touched
        assert address_space() - before >= 512 * MIB


TIB = 1 << 40


def test_a_limit_is_lifted_when_the_plan_is_over(tmp_path: Path) -> None:
    before = limits()
    with rank_here(f"rank 0: limit({TIB}) before file.mkdir"):
        assert limits() == before
        (tmp_path / "a").mkdir()
        soft, hard = limits()
        assert TIB < soft < TIB + 4 * address_space()
        assert hard == before[1]
    gc.collect()
    assert limits() == before


UNDER_A_HARD_LIMIT = """
import resource
from rankdrill.boundary import Boundary
from rankdrill.faults import STRIKES, When

def limits():
    return resource.getrlimit(resource.RLIMIT_AS)

resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 41))
for more in (1 << 42, 1 << 39):
    strike = STRIKES["limit"](When.BEFORE, (more,), Boundary())
    strike.act(None)
    soft, hard = limits()
    print(soft >> 39, hard >> 39, end=" ")
    del strike
    print(limits() == (1 << 40, 1 << 41))
"""


def test_a_limit_stays_below_one_that_cannot_be_raised() -> None:
    ran = subprocess.run([sys.executable, "-c", UNDER_A_HARD_LIMIT], capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["4 4 True", "1 4 True"], ran.stderr
