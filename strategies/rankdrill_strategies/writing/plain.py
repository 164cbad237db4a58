"""Numbers, text, bytes, and what is long and regular."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import EllipsisType, NoneType, NotImplementedType
from typing import Any

__all__ = ["PLAIN", "dotted", "write_float", "write_long"]

_LONG = 40  # characters, bytes or items, from which on what is regular is said in fewer
_BITS = 60  # of ints, from which on a power of two is written as one
_COUNT = bytes(range(256))


def write_float(number: float) -> str:
    """``0.5``, ``float('nan')``."""
    return repr(number) if math.isfinite(number) else f"float({str(number)!r})"


def _int(number: int) -> str:
    size = abs(number)
    if size.bit_length() > _BITS:
        for less in (0, 1, -1):
            power = size + less
            if power & (power - 1) == 0:
                rest = f" {'-' if (less > 0) == (number > 0) else '+'} 1" if less else ""
                return f"{'-' if number < 0 else ''}2**{power.bit_length() - 1}{rest}"
        if size == 10 ** (digits := round(size.bit_length() * math.log10(2) - 0.5)):
            return f"{'-' if number < 0 else ''}10**{digits}"
    return repr(number) if size.bit_length() < 10_000 else hex(number)  # Python prints no more than 4 300 digits


def _complex(number: complex) -> str:
    if all(math.isfinite(part) and math.copysign(1, part) > 0 for part in (number.real, number.imag)):
        return repr(number)
    return f"complex({write_float(number.real)}, {write_float(number.imag)})"


def _text(text: str | bytes) -> str:
    size = len(text)
    if size >= _LONG and text == text[:1] * size:
        return f"{text[:1]!r} * {size}"
    if size >= _LONG and isinstance(text, bytes) and text == (_COUNT * (size // 256 + 1))[:size]:
        if size == 256:
            return "bytes(range(256))"
        return f"(bytes(range(256)) * {-(-size // 256)})[:{size}]"
    return repr(text)


PLAIN: dict[type, Callable[[Any], str]] = {
    **dict.fromkeys((NoneType, bool, NotImplementedType, range, slice), repr),
    EllipsisType: lambda _: "...",
    int: _int,
    float: write_float,
    complex: _complex,
    str: _text,
    bytes: _text,
    bytearray: lambda octets: f"bytearray({_text(bytes(octets)) if octets else ''})",
}


def write_long(obj: Any) -> str | None:
    """A long list, tuple, dict or set that a person would write in few words; None for any other."""
    size = len(obj)
    if size < _LONG or not isinstance(obj, (list, tuple, dict, set)):
        return None
    items = list(obj)
    first, kind = items[0], type(obj)
    if type(first) not in PLAIN or any(type(item) is not type(first) for item in items):
        return None
    if isinstance(obj, dict):
        counts = kind is dict and items == list(range(size)) and all(value is None for value in obj.values())
        return f"dict.fromkeys(range({size}))" if counts else None
    if type(first) is int and sorted(items) == list(range(size)) and (kind is set or items == list(range(size))):
        return f"{kind.__name__}(range({size}))"
    if kind in (list, tuple) and all(item == first for item in items):
        return f"[{PLAIN[type(first)](first)}] * {size}" if kind is list else f"({PLAIN[type(first)](first)},) * {size}"
    if kind is list and type(first) is int and first == 0 and (step := items[1]) > 1 << 32:
        regular = all(item == number * step % (1 << 63) for number, item in enumerate(items))
        return f"[n * {step} % 2**63 for n in range({size})]" if regular else None
    return None


def dotted(named: Any) -> str:
    """A class or function by the name of its module and its own."""
    torch: Any = sys.modules.get("torch")
    name: str = named.__name__
    if torch is not None and getattr(torch, name, None) is named:
        return f"torch.{name}"  # which functions of its own do not know of themselves
    module = str(named.__module__).lstrip("_")
    for package in ("rankdrill_strategies.", "numpy.", "torch."):
        if module.startswith("rankdrill_strategies."):
            module = module.rpartition(".")[2]
        elif module.startswith(package) and hasattr(__import__(package[:-1]), named.__qualname__):
            module = package[:-1]
    return str(named.__qualname__) if module == "builtins" else f"{module}.{named.__qualname__}"
