"""`gather_and_save_checkpoint` and `load_checkpoint`: every rank's own state, beside the model's, in one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankdrill.gathers.call import Call
from rankdrill.gathers.channel import DEFAULT_TIMEOUT_S, channel_of
from rankdrill.gathers.checkpoint_file import Draft, Saved, pack, read, unpack
from rankdrill.gathers.coding import RAW
from rankdrill.gathers.outcomes import Kind, describe
from rankdrill.gathers.transfer import at_one, load_all

__all__ = ["Checkpoint", "Reshard", "gather_and_save_checkpoint", "load_checkpoint"]

# (the saved local states by rank, this rank, how many ranks there are now) -> this rank's local state
Reshard = Callable[[list[Any], int, int], Any]


@dataclass(frozen=True)
class Checkpoint:
    """What one rank gets back: its own state, everybody's, and how many ranks saved it."""

    local_state: Any
    shared_state: Any
    world_size: int


def gather_and_save_checkpoint(
    path: str | os.PathLike[str],
    local_state: Any,
    shared_state: Any = None,
    *,
    group: Any = None,
    group_dst: int = 0,
    weights_only: bool = True,
    timeout: float = DEFAULT_TIMEOUT_S,
) -> None:
    """Save every rank's `local_state` and one `shared_state` in the file `path`, which changes at once or not at all.

    `local_state` is what only this rank knows (where its data loader stands, its random generators), `shared_state`
    what all have alike (the state of model and optimizer); only that of `group_dst`, a rank of `group`, is used. That
    rank receives the local states, writes a file of mode 0600 beside `path`, to the disk, and renames it. Missing
    directories are made. Whoever dies when, `path` holds the former checkpoint or the new one, whole; so it does when
    this raises: the former, unless all that failed came after the renaming. States are saved as `torch.save` does:
    tensors that share memory still do, and a view brings its whole storage along.

    What could not be loaded again is refused here: with `weights_only`, as in `torch.load`, all but tensors, plain
    containers and what `torch.serialization.add_safe_globals` allows. `torch.load(path)` opens the file without
    rankdrill. `timeout` is in seconds and bounds each wait for the others, also theirs for the file to be written.

    Raises on all ranks together: StorageError (a full disk, say), EncodeError (a state that cannot be saved or loaded
    again), ArgumentMismatch (different `path`, `group_dst` or `weights_only`), DecodeError, Desynchronized, PeerLost.

        gather_and_save_checkpoint("runs/7/last.pt", {"at": sampler.at}, {"model": model.state_dict()})
    """
    channel = channel_of(group)
    with Call(channel, "gather_and_save_checkpoint", timeout) as call:
        target = call.attempt(Kind.ARGUMENT, lambda: _absolute(path))
        call.arguments = f"group_dst={group_dst}, weights_only={weights_only}, path={target}"
        if group_dst not in range(channel.size):
            call.report(Kind.ARGUMENT, f"group_dst={group_dst}: the group has ranks 0 to {channel.size - 1}")
        call.coding = RAW  # of archives, which the saver writes as they are and never loads
        packed = call.attempt(Kind.ENCODE, lambda: pack(local_state, weights_only))
        payload = call.attempt(Kind.ENCODE, lambda: call.coding.encode(packed))
        slots = call.agree(payload)
        draft = Draft(str(target)) if channel.rank == group_dst else None
        try:
            with at_one(call, slots, payload, group_dst) as loaders:
                states = load_all(call, slots, loaders)
                if draft is not None:
                    _attempt_file(
                        call, Kind.ENCODE, str(target), lambda: draft.write(shared_state, states, weights_only)
                    )
                # Nobody finds the new one before all ranks know that it is whole, and none of them has given up.
                call.confirm(all_read=False)
            if draft is not None:
                _attempt_file(call, Kind.STORAGE, str(target), draft.publish)
            call.confirm(all_read=False)
        finally:
            if draft is not None:
                draft.discard()


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    group: Any = None,
    reshard: Reshard | None = None,
    weights_only: bool = True,
    map_location: Any = "cpu",
    timeout: float = DEFAULT_TIMEOUT_S,
) -> Checkpoint:
    """What `gather_and_save_checkpoint` saved in `path`: on each rank its own local state, and the shared state.

    Every rank reads the file, so all must see it. Where `group` has another size than the one that saved,
    ``reshard(local_states, rank, world_size)`` says what this rank's local state is: it is given all saved ones in
    rank order, this rank's place in `group` and the size of `group`. Without an initialised default group this is a
    group of one rank. `weights_only` and `map_location` are those of `torch.load`; by default tensors come to the CPU,
    as the GPU that saved may not be this rank's. `timeout` is in seconds and bounds each wait for the others, also
    theirs for this rank to read the file.

    Raises on all ranks together: StorageError (a file that is missing, torn, no checkpoint, or another user's),
    DecodeError (a state that does not load, or a `reshard` that fails), ArgumentMismatch (another world size and no
    `reshard`; ranks that see different checkpoints under `path`), Desynchronized, PeerLost.
    """
    channel = channel_of(group)
    with Call(channel, "load_checkpoint", timeout) as call:
        target = call.attempt(Kind.ARGUMENT, lambda: _absolute(path))
        saved = _attempt_file(call, Kind.DECODE, str(target), lambda: read(str(target), weights_only, map_location))
        local_state = None
        if saved is not None:
            call.arguments = f"checkpoint {saved.id}, weights_only={weights_only}, path={target}"
            local_state = _local_state(call, saved, reshard, lambda one: unpack(saved, one, weights_only, map_location))
        call.agree()
    assert saved is not None
    return Checkpoint(local_state, saved.shared_state, len(saved.packed))


def _local_state(call: Call, saved: Saved, reshard: Reshard | None, load: Callable[[int], Any]) -> Any:
    rank, size, before = call.channel.rank, call.channel.size, len(saved.packed)
    if size == before:
        return call.attempt(Kind.DECODE, lambda: load(rank))
    if reshard is None:
        call.report(
            Kind.ARGUMENT,
            f"saved by {before} ranks, loaded by {size}: give reshard=, a function of (local_states, rank, world_size)",
        )
        return None
    states = call.attempt(Kind.DECODE, lambda: [load(one) for one in range(before)])
    return call.attempt(Kind.DECODE, lambda: reshard(states or [], rank, size))


def _attempt_file(call: Call, otherwise: Kind, path: str, action: Callable[[], Any]) -> Any:
    """`call.attempt`, with errors of the file told from other ones, and the file named."""
    if call.trouble is not None:
        return None
    try:
        return action()
    except Exception as error:
        kind = Kind.STORAGE if isinstance(error, OSError) else otherwise
        call.report(kind, f"{describe(error)} ({path})")
        return None


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fsdecode(path))
