"""`get_tensors_parallel`: the first of some ranks sees each one's tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rankdrill.gathers.get_configs_parallel import gather_first

__all__ = ["get_tensors_parallel"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called


@contextmanager
def get_tensors_parallel(
    tensor: torch.Tensor | None,
    ranks: Sequence[int],
    group: Any = None,
    *,
    weights_only: bool = False,
    timeout: float | None = None,
) -> Iterator[list[Any]]:
    """A context in which the first of `ranks` has the `tensor` of each of `ranks`, in their order.

    Shapes and dtypes may differ between ranks, and `None` keeps its place. Everything else is as in
    `get_configs_parallel` without a workspace.
    """
    yield gather_first("get_tensors_parallel", tensor, ranks, group, None, weights_only, timeout, _require_tensor)


def _require_tensor(value: object) -> None:
    if value is not None and not isinstance(value, torch.Tensor):
        raise TypeError(f"a tensor or None is wanted, not {type(value).__name__}")
