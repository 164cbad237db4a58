"""Which of torch's layers a frame between the user's line and a collective belongs to: it tells who is to wait."""

from __future__ import annotations

import os
from types import CodeType

from rankdrill.whose import torch_folder

__all__ = ["BETWEEN", "C10D", "FUNCTIONAL", "MOST_TO_FUNCTIONAL", "layer_of"]

C10D = os.path.join(torch_folder(), "distributed", "distributed_c10d.py")
FUNCTIONAL = os.path.join(torch_folder(), "distributed", "_functional_collectives.py")
MOST_TO_FUNCTIONAL = 6  # frames from the collective, which C++ calls, to the function that asked for it
BETWEEN = frozenset({"wrapper", "_fn", "handle_torch_function", "__torch_function__"})
"""Frames that issue nothing: decorators, and modes that see the call on its way."""


def layer_of(code: CodeType) -> int:
    """The same as one number, for C: 1 c10d's, 2 a functional collective's; and 4 for what is in between."""
    file = code.co_filename
    return (1 if file == C10D else 2 if file == FUNCTIONAL else 0) | (4 if code.co_name in BETWEEN else 0)
