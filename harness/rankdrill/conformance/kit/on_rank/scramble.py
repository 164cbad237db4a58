"""Changes a value in place, wherever it can be, as its owner may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import torch

__all__ = ["scramble"]

_MARK = "scrambled"


def scramble(value: Any) -> None:
    """Change whatever of `value` can be changed, and leave what cannot."""
    match value:
        case torch.Tensor():
            with torch.no_grad():
                value.zero_() if value.any() else value.fill_(1)
        case numpy.ndarray():
            if value.flags.writeable and value.dtype.kind in "biuf":
                value[...] = 0 if value.any() else 1
        case bytearray():
            value[:] = b"\xff" * (len(value) + 1)
        case list():
            for item in value:
                scramble(item)
            value.append(_MARK)
        case dict():
            for item in value.values():
                scramble(item)
            value[_MARK] = _MARK
        case set():
            value.add(_MARK)
        case tuple() | Mapping():
            for item in value.values() if isinstance(value, Mapping) else value:
                scramble(item)
        case _:
            pass
