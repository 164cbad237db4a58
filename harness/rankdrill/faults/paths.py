"""What a file step is about: which path it leaves, whether it makes something."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankdrill.boundary import Call

__all__ = ["creates", "left_by", "reads"]

_OPENING = frozenset({"open", "create", "attach"})


def left_by(call: Call) -> str:
    """The absolute path that is there when the step is over: of a rename or link, where it leads."""
    return str(call.args.get("dst") or call.step.target)


def creates(call: Call) -> bool:
    """Whether the step makes or changes what it is about; of an opening, whether it would make the file."""
    if call.step.op in _OPENING:
        return bool(call.args["flags"] & os.O_CREAT)
    return call.step.op not in ("stat", "lstat", "listdir", "scandir", "read")


def reads(call: Call) -> bool:
    """Whether the step opens or looks at a file that is there already."""
    return not creates(call) and os.path.isfile(call.step.target)
