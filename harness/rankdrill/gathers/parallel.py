"""`get_configs_parallel` and `get_tensors_parallel`: the first of some ranks sees what each of them has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rankdrill.gathers.call import Call
from rankdrill.gathers.channel import DEFAULT_TIMEOUT_S, channel_between
from rankdrill.gathers.outcomes import Kind
from rankdrill.gathers.stored import FileStorage, gather_stored
from rankdrill.gathers.transfer import at_one, load_all
from rankdrill.gathers.wire import Payload

__all__ = ["get_configs_parallel", "get_tensors_parallel"]


@contextmanager
def get_configs_parallel(
    config: Any,
    ranks: Sequence[int],
    group: Any = None,
    workspace_path: str | os.PathLike[str] | None = None,
    *,
    weights_only: bool = False,
    timeout: float = DEFAULT_TIMEOUT_S,
) -> Iterator[list[Any]]:
    """A context in which the first of `ranks` has the `config` of each of `ranks`, in their order, `None` included.

    `ranks` are distinct global ranks of `group`, equal on all of them; exactly they take part. The others get an empty
    list, and so does a rank that is not among them. Configs go through one shared-memory segment per rank, or through
    files below `workspace_path` if ranks are on several machines. Everything is a copy, the first rank's own config
    included. Names and files are gone before the body runs; a segment's memory is freed with the last tensor or array
    that lies in it. With `weights_only` nothing is unpickled but by torch's safe unpickler. An error in the body is
    that rank's own.

    `timeout` is in seconds and bounds each wait for the others. Raises on all of `ranks` together: StorageError,
    ArgumentMismatch, EncodeError, DecodeError, Desynchronized, PeerLost. Raises UsageError for impossible `ranks`.
    """
    yield _gather_first("get_configs_parallel", config, ranks, group, workspace_path, weights_only, timeout)


@contextmanager
def get_tensors_parallel(
    tensor: torch.Tensor | None,
    ranks: Sequence[int],
    group: Any = None,
    *,
    weights_only: bool = False,
    timeout: float = DEFAULT_TIMEOUT_S,
) -> Iterator[list[Any]]:
    """A context in which the first of `ranks` has the `tensor` of each of `ranks`, in their order.

    Shapes and dtypes may differ between ranks, and `None` keeps its place. Everything else is as in
    `get_configs_parallel` without a workspace.
    """
    yield _gather_first("get_tensors_parallel", tensor, ranks, group, None, weights_only, timeout)


def _gather_first(
    path: str, value: Any, ranks: Sequence[int], group: Any, workspace: Any, weights_only: bool, timeout: float
) -> list[Any]:
    channel = channel_between(ranks, group)
    if channel is None:
        return []
    wanted = list(ranks)
    with Call(channel, path, timeout, weights_only=weights_only) as call:
        base = call.attempt(Kind.ARGUMENT, lambda: os.path.abspath(os.fspath(workspace)) if workspace else None)
        call.arguments = f"ranks={wanted}, workspace_path={base}"
        first = channel.members.index(wanted[0])
        if base:
            values = gather_stored(call, FileStorage(base), lambda: _encode(call, path, value), first)
        else:
            values = _through_memory(call, path, value, first)
    return [values[channel.members.index(rank)] for rank in wanted] if values else []


def _through_memory(call: Call, path: str, value: Any, first: int) -> list[Any]:
    payload = call.attempt(Kind.ENCODE, lambda: _encode(call, path, value))
    slots = call.agree(payload)
    call.require_one_host("give workspace_path, a directory that all ranks can see")
    with at_one(call, slots, payload, first) as loaders:
        values = load_all(call, slots, loaders)
        call.confirm(all_read=False)
    return values


def _encode(call: Call, path: str, value: Any) -> Payload:
    if path == "get_tensors_parallel" and value is not None and not isinstance(value, torch.Tensor):
        raise TypeError(f"a tensor or None is wanted, not {type(value).__name__}")
    return call.coding.encode(value)
