"""Whether a call hands its handle to the user, who then has to wait for it.

What DDP's reducer, FSDP, checkpoints and pipelines of torch issue, and what an installed library does, is for them to
wait for. What the user's own functional collective returns waits for itself as soon as it is used.
"""

from __future__ import annotations

import sys
from types import FrameType

from rankdrill.boundary import torch_seam
from rankdrill.boundary.callsites import MOST_FRAMES, owner_of
from rankdrill.boundary.layers import BETWEEN, C10D, FUNCTIONAL, MOST_TO_FUNCTIONAL
from rankdrill.whose import Whose

__all__ = ["asked_to_wait", "handed_to_user", "returned_to_user"]

_ALWAYS = frozenset({"isend", "irecv", "batch_isend_irecv"})


def handed_to_user(depth: int = 1) -> bool:
    """Whether the collective being issued was called by the user, directly and with a handle as its result."""
    if torch_seam.torch_waits_by_tensor():
        return False
    frame: FrameType | None = sys._getframe(depth)
    public: FrameType | None = None
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if code.co_filename == C10D:
            public = frame
        elif code.co_name not in BETWEEN:
            owner = owner_of(code)
            if public is not None:
                return owner is Whose.USER and _gives_a_handle(public)
            if owner is not Whose.OURS:
                break
        frame = frame.f_back
    return False


def _gives_a_handle(public: FrameType) -> bool:
    return public.f_code.co_name in _ALWAYS or bool(public.f_locals.get("async_op"))


def asked_to_wait(depth: int = 1) -> bool:
    """Whether torch's public function for the collective being issued is to wait for it; not every torch's options say.

    Those of 2.6 do not for ``all_reduce``, ``reduce``, ``gather``, ``all_to_all`` and ``barrier``.
    """
    frame: FrameType | None = sys._getframe(depth)
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if code.co_filename == C10D:
            return frame.f_locals.get("async_op") is False
        if code.co_name not in BETWEEN and owner_of(code) is not Whose.OURS:
            break
        frame = frame.f_back
    return False


def returned_to_user(depth: int = 1) -> bool:
    """Whether the collective being issued is a functional one, called by the user directly: its result is awaited."""
    frame: FrameType | None = sys._getframe(depth)
    inside = False
    for number in range(MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if code.co_filename == FUNCTIONAL:
            inside = True
        elif inside and code.co_name not in BETWEEN:
            return owner_of(code) is Whose.USER
        elif not inside and number >= MOST_TO_FUNCTIONAL:
            break
        frame = frame.f_back
    return False
