"""`all_gather_via_filesys`: payloads go through files in a directory that all ranks can see."""

from __future__ import annotations

import os
from typing import Any

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.storage.stored import FileStorage, gather_stored

__all__ = ["all_gather_via_filesys", "directory_of", "gather_by_files"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

# Where ranks meet if no directory is given.
DIRECTORY_VARIABLE = "EXP_DIR"


def all_gather_via_filesys(
    data: Any,
    filesys_save_dir: str | os.PathLike[str] | None = None,
    gather_to_rank_0_only: bool = False,
    *,
    group: Any = None,
    weights_only: bool = False,
    timeout: float | None = None,
) -> list[Any]:
    """Every rank's `data`, in group rank order; with `gather_to_rank_0_only` on group rank 0, an empty list elsewhere.

    The directory is `filesys_save_dir`, else the environment's `EXP_DIR`, else ``rankdrill-UID`` (mode 0700) below the
    system's temporary directory, which only ranks of one machine share. It is made if absent; each call makes private
    directories (0700) in it and removes them before it returns. With `weights_only` nothing is unpickled but by torch's
    safe unpickler. `timeout`, in seconds and by default that of the group, bounds each wait for the others.

    Raises on all ranks together: StorageError (a file that cannot be written, read or removed), ArgumentMismatch,
    EncodeError, DecodeError, Desynchronized, PeerLost.
    """
    with GatherCall(channel_of(group), "all_gather_via_filesys", timeout, weights_only=weights_only) as call:
        directory = call.attempt(TroubleKind.ARGUMENT, lambda: directory_of(filesys_save_dir))
        call.arguments = f"gather_to_rank_0_only={bool(gather_to_rank_0_only)}, directory={directory or 'default'}"
        return gather_by_files(call, data, directory, gather_to_rank_0_only)


def gather_by_files(call: GatherCall, data: Any, directory: str | None, rank_0_only: bool) -> list[Any]:
    """The gather itself, inside an entered call whose arguments name directory and receiver."""
    return gather_stored(call, FileStorage(directory), lambda: call.coding.encode(data), 0 if rank_0_only else None)


def directory_of(given: str | os.PathLike[str] | None) -> str | None:
    """The directory asked for, by argument or environment; None for the default."""
    chosen = os.fspath(given) if given else os.environ.get(DIRECTORY_VARIABLE)
    return os.path.abspath(chosen) if chosen else None
