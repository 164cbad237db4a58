"""`gather_and_save_checkpoint`: every rank's own state, beside the model's, in one file."""

from __future__ import annotations

import os
from typing import Any

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.encoding.coding import RAW
from rankdrill.gathers.storage.checkpoint_file import Draft, pack
from rankdrill.gathers.storage.named_file import absolute, attempt_file
from rankdrill.gathers.transfer.moves import at_one, load_all

__all__ = ["gather_and_save_checkpoint"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called


def gather_and_save_checkpoint(
    path: str | os.PathLike[str],
    local_state: Any,
    shared_state: Any = None,
    *,
    group: Any = None,
    group_dst: int = 0,
    weights_only: bool = True,
    timeout: float | None = None,
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
    rankdrill. `timeout`, in seconds and by default that of the group, bounds each wait for the others, also theirs for
    the file to be written.

    Raises on all ranks together: StorageError (a full disk, say), EncodeError (a state that cannot be saved or loaded
    again), ArgumentMismatch (different `path`, `group_dst` or `weights_only`), DecodeError, Desynchronized, PeerLost.

        gather_and_save_checkpoint("runs/7/last.pt", {"at": sampler.at}, {"model": model.state_dict()})
    """
    channel = channel_of(group)
    with GatherCall(channel, "gather_and_save_checkpoint", timeout) as call:
        target = call.attempt(TroubleKind.ARGUMENT, lambda: absolute(path))
        call.arguments = f"group_dst={group_dst}, weights_only={weights_only}, path={target}"
        if group_dst not in range(channel.size):
            call.report(TroubleKind.ARGUMENT, f"group_dst={group_dst}: the group has ranks 0 to {channel.size - 1}")
        call.coding = RAW  # of archives, which the saver writes as they are and never loads
        packed = call.attempt(TroubleKind.ENCODE, lambda: pack(local_state, weights_only))
        payload = call.attempt(TroubleKind.ENCODE, lambda: call.coding.encode(packed))
        slots = call.agree(payload)
        draft = Draft(str(target)) if channel.rank == group_dst else None
        try:
            with at_one(call, slots, payload, group_dst) as loaders:
                states = load_all(call, slots, loaders)
                if draft is not None:
                    attempt_file(
                        call, TroubleKind.ENCODE, str(target), lambda: draft.write(shared_state, states, weights_only)
                    )
                # Nobody finds the new one before all ranks know that it is whole, and none of them has given up.
                call.confirm(all_read=False)
            if draft is not None:
                attempt_file(call, TroubleKind.STORAGE, str(target), draft.publish)
            call.confirm(all_read=False)
        finally:
            if draft is not None:
                draft.discard()
