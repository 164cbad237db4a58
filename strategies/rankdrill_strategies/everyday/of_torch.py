"""Tensors and what is around them: views, layouts, sizes, generators, states of modules and optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankdrill_strategies.everyday.table import Table

__all__ = ["MODULES", "TENSORS", "TORCH"]


def _of_torch(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        import torch

        return make(torch)

    return made


def _table(*makers: Callable[[Any], Any]) -> Table:
    return tuple(map(_of_torch, makers))


# Those next to each other that the same mistakes lose: a failure shrinks to the first of them.
TENSORS = _table(
    lambda torch: torch.zeros(()),
    lambda torch: torch.zeros(1),
    lambda torch: torch.tensor([0, 1]),
    lambda torch: torch.tensor([1.0, 0.0]),
    lambda torch: torch.arange(6).reshape(2, 3),
    lambda torch: torch.zeros(0),
    lambda torch: torch.zeros(0, 3),
    lambda torch: torch.arange(6).reshape(2, 3).t(),
    lambda torch: torch.arange(24).reshape(2, 3, 4).permute(1, 2, 0),
    lambda torch: torch.arange(16.0).reshape(1, 2, 2, 4).to(memory_format=torch.channels_last),
    lambda torch: torch.arange(6.0)[::2],
    lambda torch: torch.arange(6.0).reshape(2, 3)[:, 1:],
    lambda torch: torch.arange(6).reshape(2, 3)[:, 1],
    lambda torch: torch.arange(6.0)[2:4],
    lambda torch: torch.arange(6.0)[3],
    lambda torch: torch.arange(1000)[3:],
    lambda torch: torch.arange(2.0).expand(3, 2),
    lambda torch: torch.ones(2, requires_grad=True),
    lambda torch: torch.ones(2, dtype=torch.float64, requires_grad=True),
    lambda torch: torch.nn.Parameter(torch.ones(2)),
    lambda torch: torch.tensor([0.1], dtype=torch.bfloat16),
    lambda torch: torch.tensor([0.1], dtype=torch.float64),
    lambda torch: torch.tensor([True, False]),
    lambda torch: torch.tensor([1, 2], dtype=torch.uint8),
    lambda torch: torch.tensor([(1 << 62) + 1]),
    lambda torch: torch.tensor([1j]),
    lambda torch: torch.tensor([float("nan"), 1.0]),
    lambda torch: torch.tensor([1j, 2]).conj(),
    lambda torch: torch.eye(2).to_sparse(),
    lambda torch: torch.tensor([0.1], dtype=torch.float16),
    lambda torch: torch.tensor([1, 2], dtype=torch.int16),
    lambda torch: torch.tensor([-0.0]),
    lambda torch: torch.tensor([float("inf")]),
    lambda torch: torch.nn.Parameter(torch.ones(1), requires_grad=False),
    lambda torch: torch.tensor([1j, 2]).conj().imag,  # negated lazily
    lambda torch: torch.zeros(1, 1, 1),
    lambda torch: torch.zeros(256, dtype=torch.uint8),
    lambda torch: torch.arange(1000)[:3],
    lambda torch: torch.zeros(16384),
)

TORCH = _table(
    lambda torch: torch.Size([2, 3]),
    lambda torch: torch.float32,
    lambda torch: torch.device("cpu"),
    *[lambda torch: _used(torch, torch.Generator().manual_seed(1))] * 2,
    lambda torch: [torch.zeros(1), torch.zeros(2)],
    lambda torch: {"loss": torch.tensor(0.5), "step": 1},
    lambda torch: {"shape": torch.Size([2]), "dtype": torch.float32, "device": torch.device("cpu")},
    lambda torch: torch.bfloat16,
    lambda torch: torch.Size([]),
    lambda torch: torch.device("cuda", 1),
    lambda torch: torch.strided,
    lambda torch: torch.channels_last,
    lambda torch: torch.Generator().manual_seed(1),
    lambda torch: torch.Generator().manual_seed(1).get_state(),
    lambda torch: torch.nn.utils.rnn.pack_sequence([torch.ones(1)]),
    lambda torch: torch.Tensor,
    lambda torch: torch.relu,
    lambda torch: (torch.zeros(1), 1),
)


def _used(torch: Any, generator: Any) -> Any:
    torch.rand(3, generator=generator)
    return generator


def _module(torch: Any) -> Any:
    """A linear module of fixed weights: what initializes them would advance the global generator."""
    module = torch.nn.utils.skip_init(torch.nn.Linear, 2, 1)
    with torch.no_grad():
        module.weight.fill_(0.5)
        module.bias.fill_(0.25)
    return module


def _tied(torch: Any) -> Any:
    """Two modules with one weight."""
    one, other = _module(torch), _module(torch)
    other.weight = one.weight
    return torch.nn.ModuleList([one, other])


def _optimizer(torch: Any) -> Any:
    """What SGD with momentum says of itself after a step; in writing, for torch.optim takes a second to import."""
    buffers = {number: {"momentum_buffer": torch.ones(shape)} for number, shape in enumerate([(1, 2), (1,)])}
    group = {"lr": 0.1, "momentum": 0.9, "dampening": 0, "weight_decay": 0, "nesterov": False, "foreach": None}
    return {"state": buffers, "param_groups": [{**group, "params": [0, 1]}]}


def _batch_norm(torch: Any) -> Any:
    return torch.nn.BatchNorm1d(2).state_dict()  # with a count of batches, an integer of no dimensions


MODULES = _table(
    lambda torch: _module(torch).state_dict(),
    lambda torch: _module(torch),
    _batch_norm,
    _optimizer,
    lambda torch: _tied(torch).state_dict(),
    lambda torch: _tied(torch),
    lambda torch: {"model": _module(torch).state_dict(), "optimizer": _optimizer(torch), "epoch": 3},
)
