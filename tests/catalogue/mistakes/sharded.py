"""FSDP, DTensor and distributed checkpoints: mistakes of several kinds."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from tests.catalogue.programs import Rank, mistake


def sharded_model(ranks: int) -> nn.Module:
    """Two layers, and a group of parameters for each."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@mistake("missing call", culprits=(1,), ranks=3, torch=(2, 8))
def one_forward_less(rank: Rank) -> None:
    model = sharded_model(3)
    for step in range(4):
        if step == 2 and rank.index == 1:
            continue  # culprit
        model(torch.ones(2, 8)).sum().backward()  # culprit
    dist.barrier()  # culprit


@mistake("extra call", culprits=(0,), ranks=4, also=("missing call",), torch=(2, 8))
def rank_zero_looks_at_the_whole_weight(rank: Rank) -> None:
    model = sharded_model(4)
    if rank.index == 0:
        weight = next(model.parameters())
        assert isinstance(weight, DTensor)
        print(weight.full_tensor().norm())  # culprit
    model(torch.ones(2, 8)).sum().backward()


@mistake("extra call", culprits=(2,), ranks=3, torch=(2, 8))
def redistributed_by_one(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (3,))
    table = DTensor.from_local(torch.ones(2, 4), mesh, [Shard(0)])
    if rank.index == 2:
        table = table.redistribute(mesh, [Replicate()])  # culprit
    dist.barrier()
    assert table.shape == (6, 4)


@mistake("extra call", ranks=2, also=("missing call",), torch=(2, 8))
def printed_in_the_fiftieth_step(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (2,))
    weight = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    for step in range(55):
        dist.all_reduce(torch.ones(1))  # culprit
        if step == 49 and rank.index == 1:
            print(weight.sum().full_tensor())  # culprit


@mistake("call ordering", culprits=(1,), ranks=3, torch=(2, 8))
def placed_in_another_way(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (3,))
    placement = Replicate() if rank.index == 1 else Shard(0)
    weight = distribute_tensor(torch.ones(6, 4), mesh, [placement])  # culprit
    assert weight.shape == (6, 4)


@mistake("missing call", culprits=(2,), ranks=3, torch=(2, 8))
def fewer_steps_of_a_sharded_model(rank: Rank) -> None:
    model = sharded_model(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3 if rank.index == 2 else 4):  # culprit
        model(torch.ones(1, 8)).sum().backward()  # culprit
        optimizer.step()


@mistake("extra call", culprits=(0,), ranks=3, also=("missing call",))
def saved_by_rank_zero_alone(rank: Rank) -> None:
    state: dict[str, Any] = {"weight": torch.ones(4), "step": 3}
    if rank.index == 0:
        dcp.save(state, checkpoint_id=rank.directory)  # culprit
    dist.barrier()


@mistake("missing call", culprits=(2,), ranks=4)
def one_saves_a_step_less(rank: Rank) -> None:
    state: dict[str, Any] = {"weight": torch.ones(4)}
    for step in range(4):
        dist.all_reduce(state["weight"])  # culprit
        if step % 2 == 1 and (rank.index != 2 or step < 3):  # culprit
            dcp.save(state, checkpoint_id=rank.directory / str(step))  # culprit
    dist.barrier()  # culprit


@mistake("extra call", culprits=(0,), ranks=2, also=("missing call",), torch=(2, 8))
def the_whole_state_for_rank_zero(rank: Rank) -> None:
    model = sharded_model(2)
    if rank.index == 0:
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))  # culprit
        print(sorted(whole))
    dist.barrier()  # culprit


@mistake("lost rank", culprits=(1,), ranks=3)
def a_state_that_cannot_be_saved_by_one(rank: Rank) -> None:
    state = {"weight": torch.ones(2)}
    if rank.index == 1:
        state["average"] = state["weight"] / torch.ones(3)  # culprit
    dcp.save(state, checkpoint_id=rank.directory)


@mistake("call ordering", culprits=(2,), ranks=3, torch=(2, 8))
def gathers_the_weight_after_the_norm(rank: Rank) -> None:
    model, loss = sharded_model(3), torch.ones(1)
    weight = next(model.parameters())
    assert isinstance(weight, DTensor)
    if rank.index == 2:
        weight.full_tensor()  # culprit
        dist.all_reduce(loss)  # culprit
    else:
        dist.all_reduce(loss)
        weight.full_tensor()


@mistake("extra call", culprits=(1,), ranks=3, torch=(2, 8))
def samples_drawn_by_one(rank: Rank) -> None:
    """A forward pass gathers the weights that all ranks hold a part of."""
    model = sharded_model(3)
    for step in range(3):
        model(torch.full((2, 8), float(step))).sum().backward()
        if step == 1 and rank.index == 1:  # culprit
            with torch.no_grad():
                model(torch.ones(1, 8))  # culprit
    dist.barrier()
