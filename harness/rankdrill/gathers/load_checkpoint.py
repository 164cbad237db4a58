"""`load_checkpoint`: each rank's own state back, and the model's, on as many ranks as there are now."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.storage.checkpoint_file import Saved, read, unpack
from rankdrill.gathers.storage.named_file import absolute, attempt_file

__all__ = ["Checkpoint", "Reshard", "load_checkpoint"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

# (the saved local states by rank, this rank, how many ranks there are now) -> this rank's local state
Reshard = Callable[[list[Any], int, int], Any]


@dataclass(frozen=True)
class Checkpoint:
    """What one rank gets back: its own state, everybody's, and how many ranks saved it."""

    local_state: Any
    shared_state: Any
    world_size: int


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    group: Any = None,
    reshard: Reshard | None = None,
    weights_only: bool = True,
    map_location: Any = "cpu",
    timeout: float | None = None,
) -> Checkpoint:
    """What `gather_and_save_checkpoint` saved in `path`: on each rank its own local state, and the shared state.

    Every rank reads the file, so all must see it. Where `group` has another size than the one that saved,
    ``reshard(local_states, rank, world_size)`` says what this rank's local state is: it is given all saved ones in rank
    order, this rank's place in `group` and the size of `group`. Without an initialised default group this is a group of
    one rank. `weights_only` and `map_location` are those of `torch.load`; by default tensors come to the CPU, as the
    GPU that saved may not be this rank's. `timeout`, in seconds and by default that of the group, bounds each wait for
    the others, also theirs for this rank to read the file.

    Raises on all ranks together: StorageError (a file that is missing, torn, no checkpoint, or another user's),
    DecodeError (a state that does not load, or a `reshard` that fails), ArgumentMismatch (another world size and no
    `reshard`; ranks that see different checkpoints under `path`), Desynchronized, PeerLost.
    """
    channel = channel_of(group)
    with GatherCall(channel, "load_checkpoint", timeout) as call:
        target = call.attempt(TroubleKind.ARGUMENT, lambda: absolute(path))
        saved = attempt_file(
            call, TroubleKind.DECODE, str(target), lambda: read(str(target), weights_only, map_location)
        )
        local_state = None
        if saved is not None:
            call.arguments = f"checkpoint {saved.id}, weights_only={weights_only}, path={target}"
            local_state = _local_state(call, saved, reshard, lambda one: unpack(saved, one, weights_only, map_location))
        call.agree()
    assert saved is not None
    return Checkpoint(local_state, saved.shared_state, len(saved.packed))


def _local_state(call: GatherCall, saved: Saved, reshard: Reshard | None, load: Callable[[int], Any]) -> Any:
    rank, size, before = call.channel.rank, call.channel.size, len(saved.packed)
    if size == before:
        return call.attempt(TroubleKind.DECODE, lambda: load(rank))
    if reshard is None:
        call.report(
            TroubleKind.ARGUMENT,
            f"saved by {before} ranks, loaded by {size}: give reshard=, a function of (local_states, rank, world_size)",
        )
        return None
    states = call.attempt(TroubleKind.DECODE, lambda: [load(one) for one in range(before)])
    return call.attempt(TroubleKind.DECODE, lambda: reshard(states or [], rank, size))
