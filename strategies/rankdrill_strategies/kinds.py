"""Kinds of objects, told by type alone: nothing here calls into a payload."""

from __future__ import annotations

import functools
import inspect
import ipaddress
import operator
import re
import sys
import uuid
from dataclasses import is_dataclass
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import BuiltinMethodType, FunctionType, GenericAlias, MethodType, ModuleType
from typing import Any

__all__ = ["by_reference", "is_array", "is_frozen", "is_masked", "is_tensor", "is_value"]

_VALUES: tuple[type, ...] = (
    *(tuple, frozenset, int, float, complex, str, bytes, range, slice),
    *(Decimal, Fraction, date, time, timedelta, tzinfo, uuid.UUID, PurePath, re.Pattern, functools.partial),
    *(MethodType, BuiltinMethodType, FunctionType, GenericAlias),
    *(ipaddress.IPv4Address, ipaddress.IPv6Address, operator.itemgetter, operator.attrgetter, operator.methodcaller),
)


def is_value(obj: Any) -> bool:
    """Whether `obj` cannot change, by its type: then one object or two that are equal make no difference."""
    if isinstance(obj, _VALUES) or by_reference(obj):
        return True
    if is_frozen(obj):
        return True
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return bool(
        (numpy and isinstance(obj, (numpy.generic, numpy.dtype)))
        or (torch and isinstance(obj, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)))
    )


def is_frozen(obj: Any) -> bool:
    """Whether `obj` is a frozen dataclass."""
    return is_dataclass(obj) and bool(getattr(obj, "__dataclass_params__").frozen)  # noqa: B009 - the stubs hide it


def by_reference(obj: Any) -> bool:
    """Whether `obj` travels by name, so that it arrives as the very same object."""
    return isinstance(obj, (Enum, ModuleType)) or inspect.isclass(obj) or (is_masked(obj) and _is_masked_constant(obj))


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a torch tensor; without importing torch, for who has one has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def is_array(obj: Any) -> bool:
    """Whether `obj` is a numpy array, of that very class, or a numpy scalar."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (type(obj) is numpy.ndarray or isinstance(obj, numpy.generic))


def is_masked(obj: Any) -> bool:
    """Whether `obj` is a masked array of numpy's own class, or numpy's word for what is masked."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.ndarray) and type(obj).__module__.startswith("numpy.ma")


def _is_masked_constant(obj: Any) -> bool:
    return obj is sys.modules["numpy"].ma.masked
