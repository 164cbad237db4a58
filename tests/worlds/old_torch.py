"""What torch 2.6 does not do on CPUs, in a rank or outside of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

__all__ = ["skip_where_torch_cannot"]

NO_STREAMS = "fully_shard asks the CPU's stream for events, which has none"
_CANNOT = {
    "uses_fsdp": NO_STREAMS,
    "sharded": NO_STREAMS,
    "uneven_chunks_reduced": "gloo has no reduce_scatter",
    "pipelined": "a pipeline waits for one handle of each batch and drops the others, and gloo those messages",
}


def skip_where_torch_cannot(body: Callable[..., Any]) -> None:
    """Skip the test that is running if `body` needs what this torch cannot do."""
    reason = _CANNOT.get(body.__name__)
    if reason and tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 7):
        pytest.skip(f"torch {torch.__version__}: {reason}")
