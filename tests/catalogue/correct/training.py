"""Training, sharding and checkpoints that look uneven and are right."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from tests.catalogue.programs import Rank, correct


@correct(ranks=4)
def evenly_trained(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        model(torch.full((2, 4), float(rank.index))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@correct(ranks=3)
def uneven_batches_with_join(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    with model.join():
        for _ in range(2 + rank.index):
            model(torch.ones(2, 4)).sum().backward()
    dist.barrier()


@correct(ranks=2)
def uneven_batches_with_a_joined_optimizer(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for _ in range(3 + 2 * rank.index):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()


@correct(ranks=2)
def gradients_accumulated(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(4, 4))
    for step in range(6):
        if step % 3 < 2:
            with model.no_sync():
                model(torch.ones(1, 4)).sum().backward()
        else:
            model(torch.ones(1, 4)).sum().backward()


@correct(ranks=3)
def another_number_of_local_steps(rank: Rank) -> None:
    """What is not synchronized may be done as often as each likes."""
    model = DistributedDataParallel(nn.Linear(2, 1))
    for _ in range(3):
        with model.no_sync():
            for _ in range(1 + rank.index):
                model(torch.ones(1, 2)).sum().backward()
        model(torch.ones(1, 2)).sum().backward()


@correct(ranks=2)
def a_parameter_that_one_does_not_use(rank: Rank) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, batch: torch.Tensor, gate: int) -> Any:
            return self.left(batch) if gate == 0 else self.right(batch)

    model = DistributedDataParallel(Gated(), find_unused_parameters=True)
    for step in range(4):
        model(torch.ones(1, 2), (rank.index + step) % 2).sum().backward()


@correct(ranks=3)
def evaluated_without_its_wrapper(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    model(torch.ones(2, 4)).sum().backward()
    if rank.index == 0:
        model.module.eval()
        for _ in range(5):
            model.module(torch.ones(2, 4))
        model.module.train()
    dist.barrier()
    model(torch.ones(2, 4)).sum().backward()


@correct(ranks=4)
def a_loss_that_is_not_finite_on_one(rank: Rank) -> None:
    """All skip the step, because all are asked."""
    weight = torch.ones(3, requires_grad=True)
    for step in range(4):
        loss = (weight * (torch.inf if step == 2 and rank.index == 1 else 1.0)).sum()
        finite = loss.isfinite().int()
        dist.all_reduce(finite, op=dist.ReduceOp.MIN)
        if not finite:
            continue
        (gradient,) = torch.autograd.grad(loss, weight)
        dist.all_reduce(gradient)


@correct(ranks=2)
def gradients_in_a_hook(rank: Rank) -> None:
    layer = nn.Linear(4, 2)
    works: list[Any] = []
    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: works.append(dist.all_reduce(p.grad, async_op=True)))
    layer(torch.ones(1, 4)).sum().backward()
    for work in works:
        work.wait()
    assert layer.bias.grad is not None
    assert layer.bias.grad[0].item() == 2


@correct(ranks=3, torch=(2, 8))
def sharded_and_trained(rank: Rank) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    mesh = init_device_mesh("cpu", (3,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        model(torch.full((1 + rank.index, 8), float(step))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@correct(ranks=3)
def sharded_unevenly(rank: Rank) -> None:
    """Seven rows on three ranks: one has fewer."""
    mesh = init_device_mesh("cpu", (3,))
    table = distribute_tensor(torch.ones(7, 2), mesh, [Shard(0)])
    assert table.full_tensor().shape == (7, 2)
    assert table.to_local().shape[0] in (1, 2, 3)


@correct(ranks=2)
def redistributed_by_all(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (2,))
    table = DTensor.from_local(torch.full((2, 4), float(rank.index)), mesh, [Shard(0)])
    whole = table.redistribute(mesh, [Replicate()])
    if rank.index == 0:
        assert whole.to_local().sum().item() == 8
    dist.barrier()


@correct(ranks=2)
def printed_by_one_of_its_own_shard(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (2,))
    weight = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    if rank.index == 0:
        print(weight.to_local().norm())
    assert weight.full_tensor().sum().item() == 16


@correct(ranks=3)
def saved_and_loaded_by_all(rank: Rank) -> None:
    state: dict[str, Any] = {"weight": torch.full((4,), 2.0)}
    dcp.save(state, checkpoint_id=rank.directory)
    state["weight"].zero_()
    dcp.load(state, checkpoint_id=rank.directory)
    assert state["weight"].sum().item() == 8


@correct(ranks=3)
def saved_by_one_without_the_others(rank: Rank) -> None:
    path = rank.directory / "weights.pt"
    if rank.index == 0:
        torch.save({"weight": torch.ones(4)}, path)
    dist.barrier()
    assert torch.load(path)["weight"].sum().item() == 4


@correct(ranks=2, torch=(2, 8))  # no_dist
def a_checkpoint_that_one_saves_alone(rank: Rank) -> None:
    if rank.index == 0:
        dcp.save({"weight": torch.ones(4)}, checkpoint_id=rank.directory, no_dist=True)
    dist.barrier()
    assert any(rank.directory.iterdir())


@correct(ranks=3)
def parameters_averaged_now_and_then(rank: Rank) -> None:
    layer = nn.Linear(3, 3)
    for step in range(12):
        if step % 4 == 3:
            for parameter in layer.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= 3
        else:
            for _ in range(rank.index):
                layer(torch.ones(1, 3)).sum().backward()


@correct(ranks=4)
def layers_dropped_alike(rank: Rank) -> None:
    """All have the same seed, and one line is called in some layers only."""
    drawn = random.Random(4)

    def layer(value: torch.Tensor) -> None:
        dist.all_reduce(value)
        if drawn.random() < 0.5:
            return
        dist.all_gather([torch.zeros(2) for _ in range(4)], value)

    for _ in range(8):
        layer(torch.ones(2))


@correct(ranks=4)
def logged_by_the_first_alone_from_what_all_reduced(rank: Rank) -> None:
    """Calls of one name and two sizes, and a condition on the rank that is around none of them."""
    rows = []

    def log(value: torch.Tensor) -> None:
        dist.all_reduce(value)
        if rank.index == 0:
            rows.append(value.item())

    for size in range(3, 6):
        gradient = torch.ones(size)
        dist.all_reduce(gradient)
        log(gradient.sum())
    assert len(rows) == (3 if rank.index == 0 else 0)


@correct(ranks=3)
def the_first_reduces_on_a_line_of_its_own(rank: Rank) -> None:
    for size in (5, 3, 6):
        if rank.index == 0:
            dist.all_reduce(torch.zeros(size))
        if rank.index != 0:
            dist.all_reduce(torch.ones(size))


@correct(ranks=3, torch=(2, 8))
def samples_drawn_by_all(rank: Rank) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    mesh = init_device_mesh("cpu", (3,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for step in range(3):
        model(torch.full((2, 8), float(step + rank.index))).sum().backward()
        if step == 1:
            with torch.no_grad():
                model(torch.ones(1 + rank.index, 8))


@correct(ranks=3)
def totals_by_name(rank: Rank) -> None:
    """Filled in another order on each rank, and gone through in one."""
    names = ["loss", "length", "accuracy"]
    totals = {name: torch.zeros(len(name)) for name in names[rank.index :] + names[: rank.index]}
    for name in sorted(totals):
        dist.all_reduce(totals[name])
