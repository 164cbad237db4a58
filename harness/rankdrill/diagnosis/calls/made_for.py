"""Whose call it is: of what the user called several collectives are made, and torch makes some for something larger."""

from __future__ import annotations

from rankdrill.ledger import Post
from rankdrill.step import DDP_BUCKET

__all__ = ["made_for"]

_USERS = {"DDP": (DDP_BUCKET, "DistributedDataParallel", "DDPJoinHook"), "FSDP": ("FSDP ",), "DCP": ("checkpoint.",)}
"""What of torch's calls collectives for the user, and how what it calls them by begins; Join stands in for DDP."""


def made_for(post: Post) -> str:
    """Which collective of Python objects it belongs to, or which part of torch made it; nothing, if the user did."""
    via = post.site.via if post.site is not None else ""
    if "_object" in via:
        return via
    return next((name for name, begins in _USERS.items() if via.startswith(begins)), "")
