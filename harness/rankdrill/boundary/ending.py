"""Calls that end the process at once: no exception, no clean-up, no last line; said before they are made."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.patch import Patch
from rankdrill.whose import Whose, whose_file

__all__ = ["ending_patches"]

_FUNCTIONS = ("_exit", "abort")


def ending_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes `boundary` say that the process is about to end itself, inside of a recording or not."""
    for name in _FUNCTIONS:
        yield Patch(os, name, _announced(f"os.{name}", boundary))


def _announced(name: str, boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def end(*args: Any, **kwargs: Any) -> Any:
            # A planned strike, or the rank when its controller is done with it.
            if whose_file(sys._getframe(1).f_code.co_filename) is not Whose.OURS:
                boundary.announce_end(name)
            return original(*args, **kwargs)

        return end

    return make
