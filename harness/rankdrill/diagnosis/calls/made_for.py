"""Whose call it is: of what the user called several collectives are made, and torch makes some for something larger."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.calls.tree import FUNCTIONS, function_around
from rankdrill.ledger import Post
from rankdrill.step import DDP_BUCKET, Site

__all__ = ["made_for"]

_USERS = {"DDP": (DDP_BUCKET, "DistributedDataParallel", "DDPJoinHook"), "FSDP": ("FSDP ",), "DCP": ("checkpoint.",)}
"""What of torch's calls collectives for the user, and how what it calls them by begins; Join stands in for DDP."""
_COMM_HOOK = "_hook"  # torch's own are called so, and make what is a bucket's
_OF_A_BUCKET = frozenset({"buffer", "gradients", "set_buffer"})


def made_for(post: Post) -> str:
    """Which collective of Python objects it belongs to, or which part of torch made it; nothing, if the user did."""
    via = post.site.via if post.site is not None else ""
    if "_object" in via:
        return via
    users = post.site is not None and via in ("", post.op)
    if via.endswith(_COMM_HOOK) or (users and post.site is not None and _is_in_a_comm_hook(post.site)):
        return "DDP"
    return next((name for name, begins in _USERS.items() if via.startswith(begins)), "")


def _is_in_a_comm_hook(site: Site) -> bool:
    """Whether its function is the user's own hook for DDP's buckets, of which it is given one after what it keeps."""
    function = function_around(site)
    if not isinstance(function, FUNCTIONS) or len(function.args.args) < 2:
        return False
    bucket = function.args.args[-1].arg
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in _OF_A_BUCKET
        and isinstance(node.value, ast.Name)
        and node.value.id == bucket
        for node in ast.walk(function)
    )
