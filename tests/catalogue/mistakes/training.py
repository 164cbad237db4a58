"""DistributedDataParallel, optimizers and what people write around them: mistakes of several kinds."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from tests.catalogue.programs import Rank, mistake


class TwoHeads(nn.Module):
    """A body, and a head for each of two tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classify, self.regress = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, batch: torch.Tensor, task: str) -> torch.Tensor:
        head = self.classify if task == "classify" else self.regress
        out: torch.Tensor = head(self.body(batch))
        return out


@mistake("missing call", culprits=(3,), ranks=4)
def batches_that_do_not_divide(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    samples = torch.ones(6 if rank.index == 3 else 8, 4)
    for batch in samples.split(2):  # culprit
        model(batch).sum().backward()  # culprit
    dist.barrier()  # culprit


@mistake("missing call", culprits=(1,), ranks=3)
def a_head_that_one_rank_does_not_use(rank: Rank) -> None:
    model = DistributedDataParallel(TwoHeads())
    for step in range(4):
        tasks = ["classify"] if step == 2 and rank.index == 1 else ["classify", "regress"]
        model.zero_grad()
        losses = [model(torch.ones(2, 4), task).sum() for task in tasks]  # culprit
        torch.stack(losses).sum().backward()  # culprit


@mistake("size mismatch", culprits=(2,), ranks=3)
def another_width_on_one_rank(rank: Rank) -> None:
    hidden = 8 if rank.index == 2 else 6
    model = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 1))
    wrapped = DistributedDataParallel(model)  # culprit
    wrapped(torch.ones(1, 4)).sum().backward()


@mistake("missing call", ranks=2, also=("extra call",))
def accumulates_once_more(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(2, 2))
    for step in range(6):
        accumulates = step % 2 == 0 or (step == 5 and rank.index == 0)
        if accumulates:
            with model.no_sync():
                model(torch.ones(1, 2)).sum().backward()  # culprit
        else:
            model(torch.ones(1, 2)).sum().backward()  # culprit
    dist.barrier()  # culprit


@mistake("extra call", culprits=(0,), ranks=3)
def evaluated_on_rank_zero(rank: Rank) -> None:
    """A forward of the wrapped model broadcasts its buffers."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
    if rank.index == 0:
        model(torch.ones(2, 4))  # culprit
    dist.barrier()


@mistake("missing call", culprits=(2,), ranks=4)
def only_gradients_that_are_there(rank: Rank) -> None:
    model = TwoHeads()
    loss = model(torch.ones(2, 4), "classify").sum()
    if rank.index != 2:
        loss = loss + model(torch.ones(2, 4), "regress").sum()
    loss.backward()
    for parameter in model.parameters():
        if parameter.grad is not None:  # culprit
            dist.all_reduce(parameter.grad)  # culprit
    dist.barrier()  # culprit


@mistake("missing call", culprits=(1,), ranks=4)
def no_backward_of_a_loss_that_is_not_finite(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        batch = torch.full((2, 3), torch.inf if step == 0 and rank.index == 1 else 1.0)
        loss = model(batch).sum()
        if not loss.isfinite():
            continue  # culprit
        loss.backward()  # culprit
        optimizer.step()


@mistake("extra call", culprits=(0,), ranks=3, also=("missing call", "unmatched message"))
def consolidated_on_the_one_that_saves(rank: Rank) -> None:
    """A sharded optimizer can only be put together by all of its ranks."""
    model = DistributedDataParallel(nn.Linear(4, 4))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    if rank.index == 0:
        optimizer.consolidate_state_dict(to=0)  # culprit
    dist.barrier()


@mistake("datatype mismatch", culprits=(1,), ranks=3)
def gradients_of_another_precision(rank: Rank) -> None:
    model = nn.Linear(8, 8, bias=False)
    model = model.to(torch.bfloat16) if rank.index == 1 else model
    for _ in range(2):
        model(torch.ones(1, 8, dtype=model.weight.dtype)).sum().backward()
        assert model.weight.grad is not None
        dist.all_reduce(model.weight.grad)  # culprit


@mistake("lost rank", culprits=(2,), ranks=3)
def a_batch_of_the_wrong_shape(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    for step in range(10):
        width = 5 if step == 9 and rank.index == 2 else 4
        model(torch.ones(2, width)).sum().backward()  # culprit


@mistake("missing call", ranks=2, also=("extra call",))
def stops_early_by_its_own_loss(rank: Rank) -> None:
    model = DistributedDataParallel(nn.Linear(2, 1))
    for step in range(20):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()  # culprit
        patience = 12 if rank.index == 1 else 20
        if step >= patience:
            break  # culprit
    dist.all_reduce(torch.ones(3))  # culprit
