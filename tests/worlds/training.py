"""Training with DistributedDataParallel, right and wrong; of a wrong body the guilty line ends in `# here`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

__all__ = [
    "ODD",
    "RIGHT",
    "UNEVEN",
    "a_kernel_in_another_order",
    "a_wider_layer",
    "a_wider_layer_on_the_first",
    "one_head_less",
]

ODD = 1
NAP_S = 0.8  # longer than the looks at who waits are apart
WIDTH = 400  # of layers that need a bucket each, of 1 MB at most


def is_odd() -> bool:
    return dist.get_rank() == ODD


# ------------------------------------------------------------------------------------------ one batch too few


def one_bucket() -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    for _ in range(3 if is_odd() else 4):
        model(torch.ones(2, 4)).sum().backward()  # here


def several_buckets() -> None:
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    for _ in range(3 if is_odd() else 4):
        model(torch.ones(1, WIDTH)).sum().backward()  # here


def with_unused_parameters() -> None:
    model = DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
    for _ in range(3 if is_odd() else 4):
        model(torch.ones(1, 2), both=False).sum().backward()  # here


def through_a_hook() -> None:
    model: Any = DistributedDataParallel(nn.Linear(4, 2))
    model.register_comm_hook(None, fp16_compress_hook)
    for _ in range(3 if is_odd() else 4):
        model(torch.ones(2, 4)).sum().backward()  # here


UNEVEN: tuple[Callable[[], None], ...] = (one_bucket, several_buckets, with_unused_parameters, through_a_hook)


# ------------------------------------------------------------------------------------------ what it says itself


def a_wider_layer() -> None:
    model = nn.Linear(4, 8 if is_odd() else 6)
    DistributedDataParallel(model)  # here


def a_wider_layer_on_the_first() -> None:
    DistributedDataParallel(nn.Linear(4, 6 if dist.get_rank() else 8))


def a_kernel_in_another_order() -> None:
    model = nn.Conv2d(2, 4, 3)
    if is_odd():
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # mypy knows no such one
    DistributedDataParallel(model)  # here


def one_head_less() -> None:
    model = DistributedDataParallel(TwoHeads())
    for turn in range(3):
        model(torch.ones(1, 2), both=turn != 1 or not is_odd()).sum().backward()  # here


# ------------------------------------------------------------------------------------------ nothing wrong


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, batch: torch.Tensor, *, both: bool) -> torch.Tensor:
        out: torch.Tensor = self.one(batch)
        return out + self.other(batch) if both else out


class Napping(torch.autograd.Function):
    """Takes its time in the backward pass, doing nothing."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(NAP_S if is_odd() else 0)
        return gradients[0]


def nap(tensor: torch.Tensor) -> torch.Tensor:
    """Pass `tensor` on; the pass back takes its time."""
    passed: torch.Tensor = Napping.apply(tensor)  # type: ignore[no-untyped-call]
    return passed


def joined() -> None:
    model: Any = DistributedDataParallel(nn.Linear(4, 2))
    with model.join():
        for _ in range(3 if is_odd() else 5):
            model(torch.ones(2, 4)).sum().backward()


def accumulated() -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    for step in range(6):
        if step % 3 != 2:
            with model.no_sync():
                model(torch.ones(2, 4)).sum().backward()
        else:
            model(torch.ones(2, 4)).sum().backward()


def accumulated_more_often_on_one() -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))
    with model.no_sync():
        for _ in range(4 if is_odd() else 2):
            model(torch.ones(2, 4)).sum().backward()
    model(torch.ones(2, 4)).sum().backward()


def other_heads_on_one() -> None:
    model = DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
    for _ in range(3):
        model(torch.ones(1, 2), both=is_odd()).sum().backward()


def static_graph() -> None:
    model = DistributedDataParallel(TwoHeads(), static_graph=True)
    for _ in range(4):
        model(torch.ones(1, 2), both=False).sum().backward()


def a_straggler_in_the_backward_pass() -> None:
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    for _ in range(2):
        batch = nap(torch.ones(1, WIDTH, requires_grad=True))
        (nap(model(batch)) * 2).sum().backward()  # type: ignore[no-untyped-call]


def a_nap_after_the_last_bucket() -> None:
    """The others have returned by then, and nothing is wrong with a rank that still does something."""
    layer = nn.Linear(4, 2)
    model = DistributedDataParallel(layer)
    batch = torch.ones(2, 4, requires_grad=True)
    model(nap(batch)).sum().backward()
    time.sleep(NAP_S if is_odd() else 0)


def an_error_of_the_pass_is_handled() -> None:
    model = DistributedDataParallel(nn.Linear(4, 2))

    def refuse(gradient: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("not finite")

    out = model(torch.ones(2, 4))
    out.register_hook(refuse)
    try:
        out.sum().backward()
    except ArithmeticError:
        time.sleep(NAP_S if is_odd() else 0)
    dist.barrier()


RIGHT: tuple[Callable[[], None], ...] = (
    joined,
    accumulated,
    accumulated_more_often_on_one,
    other_heads_on_one,
    static_graph,
    a_straggler_in_the_backward_pass,
    a_nap_after_the_last_bucket,
    an_error_of_the_pass_is_handled,
)
