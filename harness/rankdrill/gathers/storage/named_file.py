"""A file that the caller names: its path, and what may go wrong there, told with its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rankdrill.errors import describe
from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.outcomes import TroubleKind

__all__ = ["absolute", "attempt_file"]


def attempt_file(call: GatherCall, otherwise: TroubleKind, path: str, action: Callable[[], Any]) -> Any:
    """`call.attempt`, with errors of the file told from other ones, and the file named."""
    if call.trouble is not None:
        return None
    try:
        return action()
    except Exception as error:
        kind = TroubleKind.STORAGE if isinstance(error, OSError) else otherwise
        call.report(kind, f"{describe(error)} ({path})")
        return None


def absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fsdecode(path))
