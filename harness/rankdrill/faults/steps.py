"""Which steps there are: the ops of each kind, as plans may name them."""

from __future__ import annotations

from collections.abc import Mapping

from rankdrill.step import MPI, MPI_CALLS, Kind

__all__ = ["COLLECTIVE_OPS", "FILE_OPS", "MEMORY_OPS", "MPI_OPS", "OBJECT_OPS", "OPS", "SHM_OPS", "STORE_OPS"]

# Listed here and not read off the boundary, which imports torch: a plan must parse without it. A test compares.
COLLECTIVE_OPS = frozenset(
    {
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "all_gather_into_tensor_coalesced",
        "all_reduce",
        "all_reduce_coalesced",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "broadcast",
        "gather",
        "monitored_barrier",
        "recv",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
        "scatter",
        "send",
    }
)
MPI_OPS = frozenset(f"{MPI}{call}" for call in MPI_CALLS)
_PATH_OPS = frozenset(
    {
        "flock",
        "fsync",
        "ftruncate",
        "link",
        "listdir",
        "lockf",
        "lstat",
        "mkdir",
        "posix_fallocate",
        "read",
        "rename",
        "replace",
        "rmdir",
        "scandir",
        "stat",
        "unlink",
        "write",
    }
)
FILE_OPS = _PATH_OPS | {"open"}
SHM_OPS = _PATH_OPS | {"create", "attach", "close"}
OBJECT_OPS = frozenset({"dump", "dumps", "load", "loads", "save"})
MEMORY_OPS = frozenset(
    {
        "cat",
        "clone",
        "empty",
        "empty_like",
        "full",
        "mmap",
        "ones",
        "ones_like",
        "resize_",
        "stack",
        "zeros",
        "zeros_like",
    }
)
STORE_OPS = frozenset(
    {
        "TCPStore",
        "add",
        "append",
        "barrier",
        "check",
        "compare_set",
        "delete_key",
        "get",
        "multi_get",
        "multi_set",
        "queue_len",
        "queue_pop",
        "queue_push",
        "set",
        "wait",
    }
)

OPS: Mapping[Kind, frozenset[str]] = {
    Kind.COLLECTIVE: COLLECTIVE_OPS | MPI_OPS,
    Kind.FILE: FILE_OPS,
    Kind.SHM: SHM_OPS,
    Kind.OBJECT: OBJECT_OPS,
    Kind.MEMORY: MEMORY_OPS,
    # Of clocks only a simulated world makes steps, and it names them.
    Kind.CLOCK: frozenset({"monotonic", "sleep", "time"}),
    Kind.GROUP: frozenset({"destroy_process_group", "new_group", "new_local_group"}),
    Kind.STORE: STORE_OPS,
}
"""The ops of each kind."""
