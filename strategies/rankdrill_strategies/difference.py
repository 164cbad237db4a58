"""Whether two objects are the same, and where they first are not."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import CellType, EllipsisType, FunctionType, NoneType, NotImplementedType
from typing import Any

from rankdrill_strategies.arguments import check_flag
from rankdrill_strategies.describe import describe, type_name
from rankdrill_strategies.elements import Pair, compare_arrays, compare_masked, compare_tensors
from rankdrill_strategies.kinds import by_reference, is_array, is_masked, is_tensor
from rankdrill_strategies.pairing import Pairing
from rankdrill_strategies.reduction import compare_attributes, compare_items, compare_keyed, compare_reductions

__all__ = ["explain_difference", "same"]


def same(a: Any, b: Any, *, sharing: bool = True) -> bool:
    """Whether `a` and `b` are the same to whoever holds one in place of the other.

    Stricter than ``==`` where ``==`` forgives, and kinder where it is of no use:

    - types must match exactly: ``1``, ``1.0`` and ``True`` all differ;
    - NaN is NaN whatever its sign and payload; ``0.0`` and ``-0.0`` differ; so do ``Decimal("1.0")`` and
      ``Decimal("1.00")``;
    - dicts must have their keys in the same order, for whoever iterates sees it; sets have no order;
    - tensors: type, dtype, shape, layout, device type, requires_grad, bits, Python attributes. Not strides, not
      the storage behind a view, not ``.grad``, not whether a sparse one is known to be coalesced. Those of other
      layouts, quantized and nested ones by the tensors that they are made of;
    - arrays: type, dtype, shape, bits. Not memory order and not byte order (numpy's own pickle keeps the latter
      only at times), not whether they may be written. Masked ones: data, also under the mask, mask, fill value;
    - other objects: by what `__reduce_ex__` says of them, their attributes in any order; those that do not pickle
      are the same only as themselves. So of an exception its cause, context and traceback do not count, which
      pickle leaves behind. `__eq__` and `__bool__` of a payload are never called. Classes and members of enums: `is`;
    - structures that contain themselves are followed once around;
    - with `sharing`, one object in two places must be one object on the other side too. This counts for what
      can change; two equal tuples, strings or frozen dataclasses are as good as one. Two views of one memory, of
      tensors as of arrays, are two objects: that they share it does not count, for pickle makes two memories of it.

    Raises `UsageError`, "cannot compare", for tensors whose elements torch does not hand out. Members of a set that
    have an identity are matched in the order found: sets whose members are alike, and told apart only by who else
    refers to them, may be found to differ.

        assert same([float("nan")], [float("nan")])
        x = []
        assert not same([x, x], [[], []])
    """
    return explain_difference(a, b, sharing=sharing) is None


def explain_difference(a: Any, b: Any, *, sharing: bool = True) -> str | None:
    """Where `a` (left) and `b` (right) first differ, as one line that begins with the way there, or None.

    See `same` for what differs. ``$`` stands for the object itself.

        >>> explain_difference({"x": [1, 2]}, {"x": [1, 2.0]})
        "$['x'][1]: int != float"
    """
    return _Walk(Pairing(check_flag("sharing", sharing))).compare(Pair("$", a, b))


class _Walk:
    """One comparison under way: an explicit stack, so that depth costs no recursion."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self._pending: list[Pair] = []
        self._sets: list[Pair] = []

    def compare(self, pair: Pair) -> str | None:
        self._pending.append(pair)
        while self._pending or self._sets:
            # Sets come last: by then most of their members have been met elsewhere, and have their partners.
            found = self._step(self._pending.pop()) if self._pending else self._match_members(self._sets.pop(0))
            if found is not None:
                return found
        return None

    def _step(self, pair: Pair) -> str | None:
        path, left, right = pair
        if type(left) is not type(right):
            ours, theirs = type_name(type(left)), type_name(type(right))
            return f"{path}: {ours} != {theirs}{' (another class of that name)' if ours == theirs else ''}"
        if by_reference(left):
            return None if left is right else f"{path}: {describe(left)} != {describe(right)}"
        if type(left) in _ATOMS:
            equal = _ATOMS[type(left)](left, right)
            return None if equal else f"{path}: {describe(left)} != {describe(right)}"
        if self.pairing.met(left, right):
            return None
        return self.pairing.pair(path, left, right) or self._open(pair)

    def _open(self, pair: Pair) -> str | None:
        """Compare two objects of one type on the surface, and note what they hold."""
        if isinstance(pair.left, (set, frozenset)):
            self._sets.append(pair)
            return None
        found = _comparer(pair.left)(*pair)
        if isinstance(found, str):
            return found
        self._pending.extend(reversed(found))
        return None

    def _match_members(self, pair: Pair) -> str | None:
        path, left, right = pair
        if len(left) != len(right):
            return f"{path}: {len(left)} members != {len(right)} members"
        ours, theirs = _by_key(left), _by_key(right)
        for key in [*ours, *theirs]:
            if key is not None and len(ours[key]) != len(theirs[key]):
                side = "left" if len(ours[key]) > len(theirs[key]) else "right"
                return f"{path}: {describe([*ours[key], *theirs[key]][0])} only on the {side}"
        rest = list(theirs[None])
        for member in ours[None]:
            partner = next((n for n, other in enumerate(rest) if self._try(path, member, other)), None)
            if partner is None:
                return f"{path}: no member on the right is the same as {describe(member)}"
            del rest[partner]
        return None

    def _try(self, path: str, left: Any, right: Any) -> bool:
        """Pair two members if that leads to no contradiction."""
        trial = _Walk(self.pairing.copy())
        if trial.compare(Pair(f"{path}.member", left, right)) is not None:
            return False
        self.pairing = trial.pairing
        return True


# ---------------------------------------------------------------------------------------------- surfaces

_PATHS = (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)


def _comparer(obj: Any) -> Callable[[str, Any, Any], str | list[Pair]]:
    if is_tensor(obj):
        return compare_tensors
    if is_array(obj):
        return compare_arrays
    if is_masked(obj):
        return compare_masked
    if isinstance(obj, FunctionType):
        return _compare_functions
    if isinstance(obj, partial):
        return _compare_partials
    if type(obj) in (list, tuple):
        return compare_items
    if type(obj) is bytearray:
        return lambda path, left, right: [] if left == right else f"{path}: {describe(left)} != {describe(right)}"
    if type(obj) in _PATHS:  # of which Python 3.12 and later keep, and pickle, how they were written
        return lambda path, left, right: [] if str(left) == str(right) else f"{path}: {left!r} != {right!r}"
    if isinstance(obj, tuple) and hasattr(obj, "_fields") and _reduces_as_any(type(obj)):
        return lambda path, left, right: compare_attributes(path, _named(left), _named(right))
    if type(obj) is dict:
        return lambda path, left, right: compare_keyed(path, list(left.items()), list(right.items()))
    return compare_reductions


def _reduces_as_any(kind: Any) -> bool:
    return bool(kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__)


def _named(obj: Any) -> dict[str, Any]:
    """The fields of a named tuple, and what a subclass of it that has no slots lets anybody add."""
    return {**obj._asdict(), **getattr(obj, "__dict__", {})}


def _compare_functions(path: str, left: FunctionType, right: FunctionType) -> str | list[Pair]:
    """Functions by name, or, where they were carried by value, by code and by what it closes over."""
    if left is right:
        return []
    for trait in ("__module__", "__qualname__", "__code__"):
        if getattr(left, trait) != getattr(right, trait):
            return f"{path}: functions with another {trait}: {describe(left)} != {describe(right)}"
    traits = ("__defaults__", "__kwdefaults__", "__dict__")
    held = [Pair(f"{path}.{trait}", getattr(left, trait), getattr(right, trait)) for trait in traits]
    return [*held, Pair(f"{path}.__closure__", _enclosed(left), _enclosed(right))]


def _compare_partials(path: str, left: Any, right: Any) -> list[Pair]:
    # Not by what they say when pickled: that tells whether anyone has ever looked at their `__dict__`.
    traits = ("func", "args", "keywords", "__dict__")
    return [Pair(f"{path}.{trait}", getattr(left, trait), getattr(right, trait)) for trait in traits]


def _enclosed(function: FunctionType) -> tuple[Any, ...]:
    return tuple(_content(cell) for cell in function.__closure__ or ())


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not assigned yet
        return None


# ---------------------------------------------------------------------------------------------- atoms


def _float_key(number: float) -> tuple[Any, ...]:
    return ("nan",) if math.isnan(number) else (number, math.copysign(1.0, number))


def _complex_key(number: complex) -> tuple[Any, ...]:
    return (*_float_key(number.real), *_float_key(number.imag))


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right)


_ATOMS: dict[type, Callable[[Any, Any], bool]] = {
    **dict.fromkeys((NoneType, EllipsisType, NotImplementedType), lambda left, right: left is right),
    **dict.fromkeys((bool, int, str, bytes), _equal),
    float: lambda left, right: _float_key(left) == _float_key(right),
    complex: lambda left, right: _complex_key(left) == _complex_key(right),
}


def _by_key(members: Any) -> dict[Any, list[Any]]:
    """The members of a set under their keys; under None those that have no key."""
    keyed: dict[Any, list[Any]] = defaultdict(list)
    for member in members:
        keyed[_member_key(member)].append(member)
    return keyed


def _member_key(member: Any) -> Any:
    """What two members have in common if and only if they are the same; None where only a comparison can tell."""
    kind = type(member)
    if kind is tuple or kind is frozenset:
        parts = [_member_key(part) for part in member]
        if None in parts:
            return None
        return kind, (tuple(parts) if kind is tuple else frozenset(Counter(parts).items()))
    if kind is float:
        return kind, _float_key(member)
    if kind is complex:
        return kind, _complex_key(member)
    return (kind, member) if kind in _ATOMS else None
