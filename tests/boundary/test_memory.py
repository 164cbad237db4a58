"""Large reservations of memory become steps; torch does not notice."""

from __future__ import annotations

import mmap
import threading
from typing import Any

import pytest
import torch

from rankdrill.boundary.memory import MIN_BYTES
from tests.faults.here import rank_here


def test_large_reservations_are_steps_with_their_size() -> None:
    with rank_here() as here:
        torch.empty(1000)
        torch.empty((10, 100), dtype=torch.float64)
        torch.zeros(size=(2000,), dtype=torch.uint8)
        torch.full((300,), 1.0)
        torch.ones(torch.Size([600]), dtype=torch.float16)
        base = torch.arange(2000)
        torch.cat([base, base])
        torch.stack((base, base))
        torch.zeros_like(base, dtype=torch.uint8)
        torch.clone(base)
        base.resize_(3000)
        mmap.mmap(-1, 8192).close()
        found = [f"{record.step.op} {record.step.nbytes}" for record in here.view]
    assert found == [
        "empty 4000",
        "empty 8000",
        "zeros 2000",
        "full 1200",
        "ones 1200",
        "cat 32000",
        "stack 32000",
        "zeros_like 2000",
        "clone 16000",
        "resize_ 24000",
        "mmap 8192",
    ]


def test_small_ones_are_no_steps() -> None:
    with rank_here() as here:
        torch.empty(MIN_BYTES // 4 - 1)
        torch.zeros(())
        torch.zeros(0)
        torch.ones(3, 3)
        torch.full((), 1)
        mmap.mmap(-1, MIN_BYTES - 1).close()
        assert here.steps == []
        torch.empty(MIN_BYTES // 4)
        assert here.steps == ["memory.empty"]


def test_wrong_arguments_fail_as_ever() -> None:
    with rank_here() as here:
        calls: list[tuple[Any, Any]] = [(torch.empty, "x"), (torch.zeros, -1000), (torch.cat, []), (torch.full, 3)]
        for function, wrong in calls:
            with pytest.raises((TypeError, RuntimeError, ValueError)):
                function(wrong)
        assert here.steps == []


def test_out_keeps_its_meaning() -> None:
    with rank_here():
        out = torch.empty(1000)
        assert torch.zeros(1000, out=out) is out
        assert torch.cat([torch.ones(500), torch.ones(500)], out=out) is out
        assert out.sum() == 1000


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_torchscript_and_the_compiler_see_torchs_functions() -> None:
    with rank_here() as here, here.boundary.closed():

        @torch.jit.script
        def scripted(n: int) -> torch.Tensor:
            return torch.zeros(n) + torch.empty([n]).fill_(1) + torch.cat([torch.ones(n), torch.ones(0)])

        assert scripted(3).tolist() == [2.0, 2.0, 2.0]
        compiled = torch.compile(lambda x: x + torch.zeros(2000).sum() + torch.ones_like(x), backend="eager")
        assert compiled(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_mapped_memory_is_mapped_memory() -> None:
    before = mmap.mmap(-1, 4096)
    with rank_here():
        mapped = mmap.mmap(-1, 4096)
        assert isinstance(before, mmap.mmap)
        assert isinstance(mapped, mmap.mmap)
        assert not isinstance(3, mmap.mmap)
        mapped[:2] = b"ab"
        assert bytes(memoryview(mapped)[:2]) == b"ab"
    assert isinstance(mapped, mmap.mmap)
    mapped.close()
    before.close()


def test_taking_it_away_restores_everything() -> None:
    before = torch.empty, torch.cat, torch.Tensor.resize_, mmap.mmap
    with rank_here():
        assert torch.empty is not before[0]
        assert "resize_" in vars(torch.Tensor)
    after = torch.empty, torch.cat, torch.Tensor.resize_, mmap.mmap
    assert all(one is other for one, other in zip(after, before, strict=True))
    assert "resize_" not in vars(torch.Tensor), "it was inherited, and is again"


def test_other_threads_take_steps_too() -> None:
    with rank_here() as here:
        thread = threading.Thread(target=lambda: torch.empty(1000))
        thread.start()
        thread.join()
        (record,) = here.view
        assert record.thread != threading.get_native_id()
