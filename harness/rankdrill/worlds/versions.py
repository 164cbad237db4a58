"""Whether anybody has written to a dictionary since: asked of CPython itself, not of every value in it.

CPython up to 3.13 numbers each state of a dictionary, for its own caches (PEP 509). Comparing thousands of values
instead brings each of them into the processor's cache, which for a rank that runs a small test is a tenth of the test.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import sysconfig
from collections.abc import Mapping
from typing import Any

__all__ = ["Version", "numbered"]

_OFFSET = object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t)  # after the header and the number of entries


class Version:
    """The state of `mapping`, a dictionary or what `vars()` gives of a class, that lives as long as this object."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        real = mapping if isinstance(mapping, dict) else gc.get_referents(mapping)[0]
        self._mapping = mapping
        self._number = ctypes.c_uint64.from_address(id(real) + _OFFSET)
        self._seen = -1
        self.touched()

    def touched(self) -> bool:
        """Whether it has, or may have, been written to since this was last asked."""
        before, self._seen = self._seen, self._number.value
        return not numbered or before != self._seen


def _numbers_are_there() -> bool:
    """Whether this interpreter numbers its dictionaries: tried, for being wrong here would go unnoticed."""
    if (
        sys.implementation.name != "cpython"
        or sys.version_info >= (3, 14)
        or sysconfig.get_config_var("Py_GIL_DISABLED")
    ):
        return False
    tried: dict[str, Any] = {"a": 1, "b": 2}
    number = ctypes.c_uint64.from_address(id(tried) + _OFFSET)
    seen = [number.value]
    for change in (
        lambda: tried.update(a=2),
        lambda: tried.update(c=1),
        lambda: tried.pop("b"),
        tried.clear,
        lambda: tried.setdefault("d", 1),
    ):
        change()
        seen.append(number.value)
    return len(set(seen)) == len(seen) and number.value == seen[-1]


numbered = _numbers_are_there()
"""False where every question is answered with "may have"."""
