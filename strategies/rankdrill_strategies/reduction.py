"""Any other object, compared by what it says of itself when pickled."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import Any

from rankdrill_strategies.describe import describe, type_name
from rankdrill_strategies.elements import Pair

__all__ = ["compare_attributes", "compare_items", "compare_keyed", "compare_reductions"]

_PROTOCOL = 4  # not 5, which hands out buffers in place of their bytes
_PARTS = 5  # callable, arguments, state, list items, dict items


def compare_reductions(path: str, left: Any, right: Any) -> str | list[Pair]:
    """Compare two objects of one class by `__reduce_ex__`: how they would be made, and their state.

    What an object keeps to itself (a cache left out by its `__getstate__`) does not count.
    """
    try:
        ours, theirs = _reduce(left), _reduce(right)
    except Exception as error:  # whatever a class raises to say that it does not pickle
        if left is right:
            return []
        return f"{path}: two objects of {type_name(type(left))}, which do not pickle: {describe(error)}"
    if isinstance(ours, str) or isinstance(theirs, str):
        return [] if ours == theirs else f"{path}: {describe(ours)} != {describe(theirs)}"
    said = f"{path}.__reduce_ex__({_PROTOCOL})"
    # A part may be absent on one side only: an object with no attributes yet has no state.
    held = [Pair(f"{said}[{part}]", ours[part], theirs[part]) for part in (0, 1)]
    for found in (
        _compare_states(path, left, ours[2], theirs[2]),
        compare_items(path, _listed(ours[3]), _listed(theirs[3])),
        compare_keyed(path, _listed(ours[4]), _listed(theirs[4])),
    ):
        if isinstance(found, str):
            return found
        held += found
    return held


def _reduce(obj: Any) -> str | tuple[Any, ...]:
    reducer = copyreg.dispatch_table.get(type(obj))
    said = reducer(obj) if reducer else obj.__reduce_ex__(_PROTOCOL)
    return said if isinstance(said, str) else (*said, *[None] * (_PARTS - len(said)))[:_PARTS]


def _listed(items: Iterator[Any] | None) -> list[Any]:
    return [] if items is None else list(items)


def _compare_states(path: str, obj: Any, left: Any, right: Any) -> str | list[Pair]:
    ours, theirs = _attributes(obj, left), _attributes(obj, right)
    if ours is None or theirs is None:
        return [Pair(f"{path}.__getstate__()", left, right)]
    return compare_attributes(path, ours, theirs)


def _attributes(obj: Any, state: Any) -> dict[str, Any] | None:
    """The attributes a state stands for; None where it is of the class's own making."""
    if state is None:
        return {}
    if _is_dict_and_slots(obj, state):
        state = {**(state[0] or {}), **state[1]}
    if isinstance(state, list) and is_dataclass(obj) and len(state) == len(fields(obj)):
        state = {each.name: value for each, value in zip(fields(obj), state, strict=True)}
    named = isinstance(state, dict) and all(isinstance(name, str) for name in state)
    return state if named else None


def _is_dict_and_slots(obj: Any, state: Any) -> bool:
    """Whether `state` is the pair that `object.__getstate__` makes for a class with slots."""
    if any("__getstate__" in vars(kind) for kind in type(obj).__mro__[:-1]):
        return False  # a tuple of the class's own making
    return isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict)


def compare_attributes(path: str, left: dict[str, Any], right: dict[str, Any]) -> str | list[Pair]:
    """Compare attributes by name, in whatever order they were set."""
    for name in left.keys() ^ right.keys():
        return f"{path}.{name}: only on the {'left' if name in left else 'right'}"
    return [Pair(f"{path}.{name}", value, right[name]) for name, value in left.items()]


def compare_items(path: str, left: Any, right: Any) -> str | list[Pair]:
    """Compare items by position."""
    if len(left) != len(right):
        return f"{path}: {len(left)} items != {len(right)} items"
    return [Pair(f"{path}[{n}]", ours, theirs) for n, (ours, theirs) in enumerate(zip(left, right, strict=True))]


def compare_keyed(path: str, left: list[tuple[Any, Any]], right: list[tuple[Any, Any]]) -> str | list[Pair]:
    """Compare keys and values by position: the order of a dict is part of it."""
    if len(left) != len(right):
        return f"{path}: {len(left)} keys != {len(right)} keys"
    held = []
    for n, ((our_key, ours), (their_key, theirs)) in enumerate(zip_longest(left, right)):
        held.append(Pair(f"{path}.keys()[{n}]", our_key, their_key))
        held.append(Pair(f"{path}[{describe(our_key)}]", ours, theirs))
    return held
