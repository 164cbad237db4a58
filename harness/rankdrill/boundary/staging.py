"""Pickling into a real file: the bytes are made inside the step, and written after it, so that the writes are steps."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

__all__ = ["staged"]


def staged(file: Any, cross: Callable[[Any], Any]) -> Any:
    """`cross(file)`; where `file` is a file on disk, `cross` writes into memory and the file is written afterwards."""
    __tracebackhide__ = True
    if not isinstance(file, io.BufferedIOBase | io.RawIOBase) or isinstance(file, io.BytesIO):
        return cross(file)
    stage = io.BytesIO()
    result = cross(stage)
    file.write(stage.getbuffer())
    return result
