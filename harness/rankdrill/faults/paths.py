"""What a file step is about: which path it leaves, whether it makes or only looks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankdrill.boundary import Call

__all__ = ["left_by", "looks", "makes", "reads"]

_OPENING = frozenset({"open", "create", "attach"})


def left_by(call: Call) -> str:
    """The absolute path that is there when the step is over: of a rename or link, where it leads."""
    return str(call.args.get("dst") or call.step.target)


def looks(call: Call) -> bool:
    """Whether the step, if it opens something, opens only what is there already."""
    return call.step.op not in _OPENING or not call.args["flags"] & os.O_CREAT


def makes(call: Call) -> bool:
    """Whether the step, if it opens something, makes it where it is not there."""
    return call.step.op not in _OPENING or bool(call.args["flags"] & os.O_CREAT)


def reads(call: Call) -> bool:
    """Whether the step opens or looks at a file that is there already."""
    return looks(call) and os.path.isfile(call.step.target)
