"""Change everything that can be changed."""

from __future__ import annotations

import array
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from rankdrill_strategies.elements import tensor_bits
from rankdrill_strategies.kinds import by_reference, is_array, is_frozen, is_tensor

__all__ = ["held_by", "scribble"]

_MARK = "scribbled"
_LIBRARY = sys.stdlib_module_names - {"types"}  # a SimpleNamespace is anybody's; what else has slots is a value


def scribble(obj: Any) -> int:
    """Change, in place, every mutable object that `obj` holds, and say how many were changed.

    Lists, dicts, sets and deques get a member more; bytearrays, arrays and tensors get every bit inverted
    (float arrays: NaN, or 0 where it was NaN), through views and strides; objects get another value in each
    attribute. Classes, functions, members of enums, numpy scalars and frozen dataclasses stay, but what frozen
    objects hold changes. Read-only arrays stay too: so the count tells whether a carrier returns arrays that
    cannot be written.

        received = my_gather(payload)
        scribble(received[0])
        assert same(received[1], payload)  # nothing was shared
    """
    return sum(_change(found) for found in _reachable(obj))


def _reachable(obj: Any) -> list[Any]:
    """Everything reachable from `obj`, each once, in the order found; complete before anything changes."""
    found: dict[int, Any] = {}
    pending = [obj]
    while pending:
        here = pending.pop()
        if id(here) in found or by_reference(here) or isinstance(here, FunctionType):
            continue
        found[id(here)] = here
        pending.extend(held_by(here))
    return list(found.values())


def held_by(obj: Any) -> Iterable[Any]:
    """What `obj` holds: items, keys, attributes."""
    if isinstance(obj, dict):
        yield from obj.keys()
        yield from obj.values()
    elif isinstance(obj, (list, tuple, set, frozenset, deque)):
        yield from obj
    elif is_array(obj) and obj.dtype.hasobject:
        yield from _objects_in(obj)
    elif isinstance(obj, (BaseException, functools.partial)):
        yield from obj.args
    if not _is_other_array(obj):  # whose attributes are numpy's, defaults of a whole class among them
        yield from _attributes(obj).values()
    if not _is_of_library(obj):  # whose slots hold caches too: since Python 3.12 a path keeps its parts in lists
        yield from (getattr(obj, name) for name in _set_slots(obj))


def _is_of_library(obj: Any) -> bool:
    return type(obj).__module__.partition(".")[0] in _LIBRARY


def _attributes(obj: Any) -> dict[str, Any]:
    found = getattr(obj, "__dict__", None)
    return found if isinstance(found, dict) else {}  # an alias such as list[int] shows those of its class


def _set_slots(obj: Any) -> list[str]:
    names = [name for kind in type(obj).__mro__ for name in _slot_names(kind)]
    return [name for name in names if hasattr(obj, name)]


def _slot_names(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _objects_in(obj: Any) -> Iterable[Any]:
    if obj.dtype.names is None:
        yield from obj.flat
        return
    for name in obj.dtype.names:
        if obj.dtype[name].hasobject:
            import numpy

            yield from _objects_in(numpy.asarray(obj)[name])


# ---------------------------------------------------------------------------------------------- changes


def _change(obj: Any) -> bool:
    """Change one object; whether it is of a kind that changes."""
    if is_tensor(obj):
        return _invert_tensor(obj)
    if is_array(obj) or _is_other_array(obj):
        return _invert_array(obj)
    for kind, change in _CHANGES:
        if isinstance(obj, kind):
            return change(obj)
    return _change_attributes(obj)


def _is_other_array(obj: Any) -> bool:
    """Whether `obj` is of a subclass of numpy's arrays, such as one of records."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.ndarray)


def _change_list(obj: list[Any] | deque[Any]) -> bool:
    obj.append(_MARK)
    return not isinstance(obj, deque) or obj.maxlen != 0


def _change_dict(obj: dict[Any, Any]) -> bool:
    obj[_MARK] = len(obj)
    return True


def _change_set(obj: set[Any]) -> bool:
    obj.add(_MARK)
    return True


def _invert_buffer(obj: bytearray | array.array[Any]) -> bool:
    view = memoryview(obj).cast("B")
    for index, octet in enumerate(view):
        view[index] = octet ^ 0xFF
    return bool(len(view))


def _change_attributes(obj: Any) -> bool:
    if is_frozen(obj) or _is_of_library(obj):
        return False
    attributes = _attributes(obj)
    for name, value in attributes.items():
        attributes[name] = (_MARK, value)
    slots = _set_slots(obj)
    for name in slots:
        setattr(obj, name, (_MARK, getattr(obj, name)))
    return bool(attributes or slots)


_CHANGES: tuple[tuple[Any, Callable[[Any], bool]], ...] = (
    ((list, deque), _change_list),
    (dict, _change_dict),
    (set, _change_set),
    ((bytearray, array.array), _invert_buffer),
)

# ---------------------------------------------------------------------------------------------- bits


def _invert_tensor(tensor: Any) -> bool:
    import torch

    plain = tensor.detach()
    if plain.layout is torch.sparse_coo:
        plain = plain._values()
    if not plain.numel():
        return False
    if plain.is_conj():
        plain = plain.conj()  # the memory itself
    if plain.is_neg():
        return _invert_negated(plain)
    for dim, stride in enumerate(plain.stride()):
        if stride == 0:
            plain = plain.narrow(dim, 0, 1)  # torch refuses to write to one place twice
    if plain.dtype == torch.bool:
        plain.logical_not_()
    else:
        tensor_bits(plain).bitwise_not_()
    return True


def _invert_negated(tensor: Any) -> bool:
    """Through a view that negates what it reads and writes."""
    changed = tensor.resolve_neg().clone()
    tensor_bits(changed).bitwise_not_()
    tensor.copy_(changed)
    return True


def _invert_array(found: Any) -> bool:
    import numpy

    if not isinstance(found, numpy.ndarray) or not found.flags.writeable or not found.size:
        return False
    return _invert_elements(found.view(numpy.ndarray))  # of a masked array: its data


def _invert_elements(found: Any) -> bool:
    import numpy

    if found.dtype.names is not None:
        return sum([_invert_elements(found[name]) for name in found.dtype.names]) > 0
    if not found.dtype.itemsize:
        return False
    if found.dtype.kind == "c":
        return _invert_elements(found.real) and _invert_elements(found.imag)
    if found.dtype.kind == "O":
        for index in numpy.ndindex(found.shape):
            found[index] = (_MARK, found[index])
        return True
    with numpy.errstate(all="ignore"):  # a signalling NaN signals
        found[...] = _inverted(found)
    return True


def _inverted(found: Any) -> Any:
    import numpy

    kind = found.dtype.kind
    if kind == "f":
        return numpy.where(numpy.isnan(found), 0.0, numpy.nan)
    if kind in "mM":
        return (~found.astype("i8")).view(found.dtype.newbyteorder("="))
    if kind in "SUT":
        return numpy.where(found == numpy.array("#", found.dtype), numpy.array("~", found.dtype), "#")
    if kind == "V":
        flipped = bytes(octet ^ 0xFF for octet in found.tobytes())
        return numpy.frombuffer(flipped, found.dtype).reshape(found.shape)
    return ~found
