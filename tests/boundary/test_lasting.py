"""Handles in the hands of C++: waited for later, more than once, or asked for their future, whatever torch keeps."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from rankdrill import World
from rankdrill.boundary import lasting, torch_seam
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.work import TrackedWork
from rankdrill.ledger import State
from tests.faults.here import Here, rank_here
from tests.torch_can import end_group

TIMEOUT_S, DEADLINE_S = 30, 20.0
RANKS = 2


@pytest.fixture(params=["this torch", "one that keeps nothing"])
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Here]:
    """A world of one in this process."""
    if request.param != "this torch":
        monkeypatch.setattr(torch_seam, "keeps_work", lambda: False)
    with rank_here(ignored=(str(tmp_path),)) as rank:
        store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=TIMEOUT_S))
        yield rank
        end_group()


def world_group() -> DrilledGroup:
    group = dist.group.WORLD
    assert isinstance(group, DrilledGroup)
    return group


def states(here: Here) -> list[State]:
    return [record.state for record in here.view if record.step.op.startswith("all_reduce")]


def test_what_is_waited_for_by_its_tensor(here: Here) -> None:
    reduced = functional.all_reduce(torch.ones(2), "sum", world_group())
    gc.collect()
    assert states(here) == [State.ISSUED]
    assert reduced.sum().item() == 2
    assert states(here) == [State.ENDED]


def test_each_tensor_of_a_coalesced_call_is_waited_for(here: Here) -> None:
    first, second = functional.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", world_group())
    assert first.sum().item() == 2
    for _ in range(5):
        assert functional.all_reduce(torch.ones(1), "sum", world_group()).sum().item() == 1
    gc.collect()
    assert second.sum().item() == 3


def test_reducers_get_their_futures(here: Here) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    kept = []
    for _ in range(4):  # before the second the buckets are made anew, which is agreed on
        model(torch.ones(1, 3)).sum().backward()
        kept.append(len(world_group().lasting))
    assert model.module.weight.grad is not None
    assert model.module.weight.grad.tolist() == [[4.0, 4.0, 4.0]]
    # gloo completes the future, which ends the pass, a moment before the work.
    assert set(states(here)) <= {State.ISSUED, State.ENDED}
    assert kept[1] == kept[-1]  # whoever has the future needs no handle


def test_python_holds_what_it_was_given_itself(here: Here) -> None:
    work = world_group().allreduce([torch.ones(1)])
    assert isinstance(work, TrackedWork)
    assert work.wait()
    assert len(world_group().lasting) == 0


def test_what_was_waited_for_holds_no_tensors(here: Here) -> None:
    reduced: Any = functional.all_reduce(torch.ones(2), "sum", world_group())
    storage = weakref.ref(reduced.elem.untyped_storage())
    assert reduced.sum().item() == 2
    del reduced
    gc.collect()
    assert storage() is None


def test_not_more_are_kept_than_a_bound(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "MOST_LASTING", 3)
    for _ in range(10):
        functional.all_reduce(torch.ones(1), "sum", world_group()).sum()
    assert len(world_group().lasting) == (0 if torch_seam.keeps_work() else 3)


def test_on_ranks() -> None:
    def body() -> tuple[float, float]:
        reduced = functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD)  # type: ignore[arg-type]
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
        model(torch.full((1, 3), dist.get_rank() + 1.0)).sum().backward()
        assert model.module.weight.grad is not None
        return reduced.sum().item(), model.module.weight.grad.sum().item()

    with World(RANKS) as world:
        assert world.run(body, deadline=DEADLINE_S).unwrap() == [(4.0, 4.5)] * RANKS


def trains_on_uneven_batches(divide_by_all: bool) -> int:
    """Rank 0 has more of them: who has ended is told of in each forward pass, by a handle that C++ waits for."""
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    batches = 3 if dist.get_rank() == 0 else 1
    with model.join(divide_by_initial_world_size=divide_by_all):
        for _ in range(batches):
            gc.collect()
            model(torch.ones(1, 2)).sum().backward()
    return batches


@pytest.mark.parametrize("divide_by_all", [True, False])
def test_what_a_forward_pass_gives_its_reducer_is_waited_for(divide_by_all: bool) -> None:
    with World(RANKS) as world:
        assert world.run(trains_on_uneven_batches, divide_by_all, deadline=60.0).unwrap() == [3, 1]


def test_reducers_are_given_the_handle_of_a_forward_pass() -> None:
    """The name that `boundary/forward_work.py` stands in for."""
    assert "_set_forward_pass_work_handle(" in inspect.getsource(DistributedDataParallel)
    assert hasattr(getattr(dist, "Reducer"), "_set_forward_pass_work_handle")  # noqa: B009 (torch's stubs leave it out)
