"""`get_configs_parallel`: the first of some ranks sees what each of them has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.registry import channel_between
from rankdrill.gathers.encoding.wire import Encoded
from rankdrill.gathers.storage.stored import FileStorage, gather_stored
from rankdrill.gathers.transfer.moves import at_one, load_all

__all__ = ["gather_first", "get_configs_parallel"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called


@contextmanager
def get_configs_parallel(
    config: Any,
    ranks: Sequence[int],
    group: Any = None,
    workspace_path: str | os.PathLike[str] | None = None,
    *,
    weights_only: bool = False,
    timeout: float | None = None,
) -> Iterator[list[Any]]:
    """A context in which the first of `ranks` has the `config` of each of `ranks`, in their order, `None` included.

    `ranks` are distinct global ranks of `group`, equal on all of them; exactly they take part. The others get an empty
    list, and so does a rank that is not among them. Configs go through one shared-memory segment per rank, or through
    files below `workspace_path` if ranks are on several machines. Everything is a copy, the first rank's own config
    included. Names and files are gone before the body runs; a segment's memory is freed with the last tensor or array
    that lies in it. With `weights_only` nothing is unpickled but by torch's safe unpickler. An error in the body is
    that rank's own.

    `timeout`, in seconds and by default that of the group, bounds each wait for the others. Raises on all of `ranks`
    together: StorageError, ArgumentMismatch, EncodeError, DecodeError, Desynchronized, PeerLost. Raises UsageError for
    impossible `ranks`.
    """
    yield gather_first("get_configs_parallel", config, ranks, group, workspace_path, weights_only, timeout)


def gather_first(
    path: str,
    value: Any,
    ranks: Sequence[int],
    group: Any,
    workspace: Any,
    weights_only: bool,
    timeout: float | None,
    require: Callable[[Any], None] = lambda value: None,
) -> list[Any]:
    """What the first of `ranks` gets, in their order; nothing elsewhere. `require` refuses a value by raising."""
    channel = channel_between(ranks, group)
    if channel is None:
        return []
    wanted = list(ranks)
    with GatherCall(channel, path, timeout, weights_only=weights_only) as call:

        def encode() -> Encoded:
            require(value)
            return call.coding.encode(value)

        base = call.attempt(TroubleKind.ARGUMENT, lambda: os.path.abspath(os.fspath(workspace)) if workspace else None)
        call.arguments = f"ranks={wanted}, workspace_path={base}"
        first = channel.members.index(wanted[0])
        values = gather_stored(call, FileStorage(base), encode, first) if base else _through_memory(call, encode, first)
    return [values[channel.members.index(rank)] for rank in wanted] if values else []


def _through_memory(call: GatherCall, encode: Callable[[], Encoded], first: int) -> list[Any]:
    payload = call.attempt(TroubleKind.ENCODE, encode)
    slots = call.agree(payload, by_tray=True)
    call.require_one_host("give workspace_path, a directory that all ranks can see")
    with at_one(call, slots, payload, first) as loaders:
        values = load_all(call, slots, loaders)
        call.confirm(all_read=False)
    return values
