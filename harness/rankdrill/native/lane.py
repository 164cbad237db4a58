"""Which lane watched calls take: C, where it was built from this source, or Python, which does the same.

``RANKDRILL_NATIVE=0`` has them take Python's in any case, ``RANKDRILL_NATIVE=1`` refuses to go on without C.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["EDITION", "LANE_VARIABLE", "hot", "lane"]

EDITION = 11
"""As in hot.c: an editable install may have built it from another source."""
LANE_VARIABLE = "RANKDRILL_NATIVE"


def _load() -> ModuleType | None:
    asked = os.environ.get(LANE_VARIABLE, "")
    if asked == "0":
        return None
    try:
        module = importlib.import_module("rankdrill.native.hot")
    except ImportError:  # there was no compiler, or it is for another Python
        module = None
    if module is not None and module.EDITION != EDITION:
        module = None
    if module is None and asked == "1":
        raise ImportError(f"{LANE_VARIABLE}=1, but rankdrill's C was not built from this source: pip install it anew")
    return module


hot = _load()


def lane() -> str:
    """``C``, or ``Python``."""
    return "Python" if hot is None else "C"
