"""Gathers in whatever state of torch their callers are in: what arrives is what torch's own gather gives there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import rankdrill
from rankdrill.conformance import ways
from tests.drop_in.ways import here, torchs

SIZES = (4, 100_000)  # elements: with the agreement, and after it


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "with torch.device": lambda: torch.device("meta"),
    "default device": default_device,
    "default dtype": default_dtype,
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "function mode": Functions,
    "dispatch mode": Dispatches,
}
ALIKE = (
    "with torch.device",
    "default dtype",
    "inference mode",
    "no grad",
    "dispatch mode",
)  # a thread's own, as a function mode is


def told(value: Any) -> tuple[Any, ...]:
    """What can be told of a payload that has arrived."""
    tensor = value if isinstance(value, torch.Tensor) else value["tensor"]
    of_tensor = tensor.device, tensor.dtype, tensor.is_inference(), tensor.tolist()[:4]
    if value is tensor:
        return of_tensor
    parameter = value["parameter"]
    return (
        *of_tensor,
        type(parameter),
        parameter.device,
        parameter.requires_grad,
        value["number"],
    )


@pytest.mark.parametrize(
    ("on", "state"),
    [
        *(("all ranks", state) for state in STATES),
        *(pytest.param("one rank", state, marks=[pytest.mark.nightly] * (state in ALIKE)) for state in STATES),
    ],
)
def test_every_path(state: str, on: str, tmp_path: Path) -> None:
    def body() -> list[str]:
        rank = dist.get_rank()
        wrong = []
        for size in SIZES if on == "one rank" else SIZES[:1]:
            tensor = torch.arange(size, dtype=torch.float32) + rank
            payload = {"tensor": tensor, "parameter": torch.nn.Parameter(torch.ones(size)), "number": rank}
            for way, weights_only in product(ways.WAYS.values(), (False, True)):
                sent = payload["tensor"] if way.tensors_only else payload
                with STATES[state]() if on == "all ranks" or rank == 1 else nullcontext():
                    expected = torchs(sent)
                    found = way.call(sent, here(tmp_path, weights_only=weights_only))
                expected = way.given_to(rank, expected)
                if list(map(told, found)) != list(map(told, expected)):
                    wrong.append(f"{way.name} of {size}: {list(map(told, found))}, {list(map(told, expected))}")
        return wrong

    with rankdrill.World(2) as world:
        assert world.run(body, deadline=120).unwrap() == [[], []]
