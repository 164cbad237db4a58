"""Collectives become steps, whoever issues them; results are those of the backend."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from rankdrill import World
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.handed import asked_to_wait
from rankdrill.ledger import State
from rankdrill.step import NO_SEQUENCE
from rankdrill.worlds import Outcome
from tests.faults.here import Here, rank_here
from tests.torch_can import Can, can, end_group

TIMEOUT_S = 30


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    """A world of one in this process."""
    with rank_here(ignored=(str(tmp_path),)) as rank:
        store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=TIMEOUT_S))
        yield rank
        end_group()


def shown(here: Here) -> list[str]:
    return [f"{r.step.op} {r.step.fingerprint}".strip() for r in here.view if r.step.kind == "collective"]


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # names that torch 2.13 renames
def test_each_collective_is_one_step(here: Here) -> None:
    one, many = torch.ones(2), [torch.zeros(2)]
    dist.all_reduce(one)
    dist.all_reduce(one, dist.ReduceOp.MAX)
    dist.broadcast(one, 0)
    dist.reduce(one, 0)
    dist.all_gather(many, one)
    dist.all_gather_into_tensor(torch.zeros(2), one)
    dist.gather(one, many, 0)
    dist.scatter(one, many, 0)
    refused = ""
    try:
        dist.reduce_scatter(one, [torch.ones(2)])
    except RuntimeError as error:
        refused = str(error)
    unknown_to_gloo = "" if can(Can.REDUCE_SCATTER) else "reduce_scatter"
    assert bool(refused) == bool(unknown_to_gloo), refused
    dist.reduce_scatter_tensor(one, torch.ones(2))
    dist.all_to_all_single(one, torch.ones(2))
    dist.barrier()
    assert shown(here) == [
        "all_reduce float32[2] sum",
        "all_reduce float32[2] max",
        "broadcast float32[2] root=0",
        "reduce float32[2] sum root=0",
        "all_gather float32[2]",
        "all_gather_into_tensor float32[2]",
        "gather float32[2] root=0",
        "scatter float32[2] root=0",
        "reduce_scatter float32[2] sum",
        "reduce_scatter_tensor float32[2] sum",
        "all_to_all_single float32[2]",
        "barrier",
    ]
    records = [record for record in here.view if record.step.kind == "collective"]
    issued = [record for record in records if record.step.op != unknown_to_gloo]  # who is refused gives its number back
    assert [record.step.sequence for record in issued] == list(range(len(issued)))
    assert {record.state for record in issued} == {State.ENDED}
    assert {record.step.target for record in records} == {"default"}
    assert records[0].step.nbytes == 8
    assert records[0].patience_ms == TIMEOUT_S * 1000
    assert one.tolist() == [1.0, 1.0]


def test_an_asynchronous_call_is_issued_then_waited_for(here: Here) -> None:
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert here.view.records[-1].state in (State.ISSUED, State.ENDED)
    work.wait()
    assert here.view.records[-1].state is State.ENDED
    assert work.is_completed()
    assert work.is_success()
    assert work.get_future().done()


def test_a_call_that_raises_is_on_record(here: Here) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_gather([torch.zeros(1), torch.zeros(1)], torch.ones(1))
    assert here.view.records[-1].state is State.RAISED


def test_objects_and_tensors_of_object_collectives_are_steps(here: Here) -> None:
    received: list[Any] = [None]
    dist.all_gather_object(received, {"a": 1})
    assert received == [{"a": 1}]
    assert [step for step in here.steps if "memory" not in step] == [
        "object.dump",
        "collective.all_gather",
        "collective.all_gather",
        "object.load",
    ]


def test_groups_are_numbered_apart(here: Here) -> None:
    other = dist.new_group([0])
    assert isinstance(other, DrilledGroup)
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1), group=other)
    dist.all_reduce(torch.ones(1))
    found = [(r.step.target, r.step.sequence) for r in here.view if r.step.op == "all_reduce"]
    assert found[0][0] == found[2][0] == "default"
    assert found[1][0] != "default"
    assert [sequence for _, sequence in found] == [0, 0, 1]


def test_ddp_is_seen_too(here: Here) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 1))
    model(torch.ones(1, 300)).sum().backward()
    assert "all_reduce" in " ".join(shown(here))


def test_whether_torch_is_to_wait_is_told_by_its_public_function(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[bool] = []
    given = DrilledGroup.allreduce

    def allreduce(self: DrilledGroup, *args: Any, **kwargs: Any) -> Any:
        waits.append(asked_to_wait(2))
        return given(self, *args, **kwargs)

    monkeypatch.setattr(DrilledGroup, "allreduce", allreduce)
    group: Any = dist.group.WORLD
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    group.allreduce([torch.ones(1)]).wait()
    functional.all_reduce(torch.ones(1), "sum", group).sum()
    assert waits == [True, False, False, False]


def test_nothing_is_recorded_while_closed(here: Here) -> None:
    with here.boundary.closed():
        dist.all_reduce(torch.ones(1))
    assert shown(here) == []


def exchange() -> list[float]:
    rank = dist.get_rank()
    tensor = torch.full((1,), float(rank))
    if rank == 0:
        dist.send(tensor, 1, tag=5)
        dist.recv(tensor, 1)
    else:
        received = torch.zeros(1)
        dist.recv(received, 0, tag=5)
        dist.send(tensor + received, 0)
    outputs = list(torch.zeros(2).chunk(2))
    dist.all_to_all_single(torch.cat(outputs), torch.ones(2))
    dist.monitored_barrier()
    return [tensor.item()]


def test_real_ranks_send_and_receive() -> None:
    with World(2) as world:
        outcome: Outcome = world.run(exchange)
        assert outcome.unwrap() == [[1.0], [1.0]]
        first = [r.step for r in outcome.ranks[0].ledger if r.step.kind == "collective"]
    assert [f"{step.op} {step.fingerprint}".strip() for step in first] == [
        "send float32[1] peer=1 tag=5",
        "recv float32[1] peer=1 tag=0",
        "all_to_all_single float32[2]",
        "monitored_barrier",
    ]
    assert [step.sequence for step in first[:2]] == [NO_SEQUENCE] * 2
