"""The methods of a process group that are steps: which public function each is, and its arguments by position.

Torch 2.13 renamed some; both names are here, and those that a torch lacks are never called.
"""

from __future__ import annotations

from rankdrill.step import RECV, SEND

__all__ = ["METHODS"]

METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "allreduce": ("all_reduce", ("tensors", "opts")),
    "allreduce_coalesced": ("all_reduce_coalesced", ("tensors", "opts")),
    "broadcast": ("broadcast", ("tensors", "opts")),
    "reduce": ("reduce", ("tensors", "opts")),
    "allgather": ("all_gather", ("outputs", "tensors", "opts")),
    "allgather_coalesced": ("all_gather_coalesced", ("outputs", "tensors", "opts")),
    "_allgather_base": ("all_gather_into_tensor", ("outputs", "tensors", "opts")),
    "all_gather_single": ("all_gather_into_tensor", ("outputs", "tensors", "opts")),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor_coalesced", ("outputs", "tensors", "opts")),
    "all_gather_single_coalesced": ("all_gather_into_tensor_coalesced", ("outputs", "tensors", "opts")),
    "gather": ("gather", ("outputs", "tensors", "opts")),
    "scatter": ("scatter", ("outputs", "tensors", "opts")),
    "reduce_scatter": ("reduce_scatter", ("outputs", "tensors", "opts")),
    "_reduce_scatter_base": ("reduce_scatter_tensor", ("outputs", "tensors", "opts")),
    "reduce_scatter_single": ("reduce_scatter_tensor", ("outputs", "tensors", "opts")),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor_coalesced", ("outputs", "tensors", "opts")),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor_coalesced", ("outputs", "tensors", "opts")),
    "alltoall": ("all_to_all", ("outputs", "tensors", "opts")),
    "alltoall_base": ("all_to_all_single", ("outputs", "tensors", "output_splits", "input_splits", "opts")),
    "all_to_all_single": ("all_to_all_single", ("outputs", "tensors", "output_splits", "input_splits", "opts")),
    "barrier": ("barrier", ("opts",)),
    "monitored_barrier": ("monitored_barrier", ("timeout", "wait_all_ranks")),
    "send": (SEND, ("tensors", "peer", "tag")),
    "recv": (RECV, ("tensors", "peer", "tag")),
    "recv_anysource": (RECV, ("tensors", "tag")),
}
