"""Objects as Python code: what is shared has a name, what contains itself is filled afterwards."""

from __future__ import annotations

import array
import ast
import copyreg
import functools
import inspect
import ipaddress
import itertools
import operator
import pickle
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, Flag
from types import BuiltinFunctionType, FunctionType, GenericAlias, MethodType, ModuleType, SimpleNamespace
from typing import Any

from rankdrill_strategies.kinds import by_reference, is_tensor, is_value
from rankdrill_strategies.scribble import held_by
from rankdrill_strategies.writing.of_arrays import is_of_numpy, write_array
from rankdrill_strategies.writing.of_tensors import write_tensor
from rankdrill_strategies.writing.plain import PLAIN, dotted, write_long
from rankdrill_strategies.writing.states import write_state

__all__ = ["as_code"]

_DEEP = 20  # levels from which on nesting is written as a loop
_LONGEST_PICKLE = 4000  # characters


def as_code(obj: Any) -> str:
    """`obj` as a Python expression that makes its like, for a test: modules are called by their own names.

    An object in two places is named where it comes first (``[x := [], x]``), one that contains itself is filled
    afterwards, views and strides of tensors and arrays are written as they are. What has no better form is a pickle;
    what would be a long one is shown in angle brackets, which nobody can paste by mistake. Never raises.

        >>> as_code({"a": float("nan"), "b": 2**63})
        "{'a': float('nan'), 'b': 2**63}"
    """
    try:
        return _Writer(obj).write(obj)
    except Exception:  # a payload's own methods may raise anything, and it is only about to be shown
        return repr(obj)


class _Writer:
    """One object being written."""

    def __init__(self, obj: Any) -> None:
        self._shared, self._cyclic = _occurrences(obj)
        self._named: dict[int, str] = {}
        self._names = (name for name in itertools.chain("xyzuvw", (f"x{n}" for n in itertools.count(1))))

    def write(self, obj: Any) -> str:
        """The expression for `obj`, or the name that it has."""
        if id(obj) in self._named:
            return self._named[id(obj)]
        if id(obj) in self._cyclic and type(obj) in _FILLED:
            empty, fill = _FILLED[type(obj)]
            name = self._named[id(obj)] = next(self._names)
            return f"({name} := {empty}, {name}.{fill}({self._items(obj)}))[0]"
        if id(obj) in self._cyclic and not isinstance(obj, tuple):
            name = self._named[id(obj)] = next(self._names)
            kind = dotted(type(obj))
            parts = ", ".join(f"setattr({name}, {key!r}, {self.write(value)})" for key, value in _state(obj).items())
            return f"({name} := {kind}(), {parts})[0]"
        if id(obj) not in self._shared:
            return self._made(obj)
        made = self._made(obj)  # its name is given afterwards: what it holds is evaluated before
        self._named[id(obj)] = next(self._names)
        return f"({self._named[id(obj)]} := {made})"

    def _made(self, obj: Any) -> str:
        kind = type(obj)
        if kind in PLAIN:
            return PLAIN[kind](obj)
        if is_tensor(obj):
            return write_tensor(obj)
        if is_of_numpy(obj):
            return write_array(obj, self.write) or _pickled(obj)
        if isinstance(obj, (list, tuple, dict, set, frozenset, deque)):
            found = write_long(obj) or self._nested(obj) or self._container(obj)
            if found:
                return self._with_attributes(found, obj)
        return self._referred(obj) or write_state(obj) or self._called(obj) or _pickled(obj)

    def _with_attributes(self, code: str, obj: Any) -> str:
        """With what anybody may have added to the `__dict__` of `obj`."""
        attributes = getattr(obj, "__dict__", None)
        if not attributes or hasattr(obj, "_fields"):
            return code
        name = next(self._names)
        return f"({name} := {code}, {name}.__dict__.update({self.write(dict(attributes))}))[0]"

    # ------------------------------------------------------------------------------------------ containers

    def _items(self, obj: Any) -> str:
        if isinstance(obj, dict):
            return "{" + ", ".join(f"{self.write(key)}: {self.write(value)}" for key, value in obj.items()) + "}"
        return "[" + ", ".join(map(self.write, obj)) + "]"

    def _container(self, obj: Any) -> str | None:
        kind = type(obj)
        if kind in (list, dict):
            return self._items(obj)
        if kind is tuple:
            return "(" + ", ".join(map(self.write, obj)) + (",)" if len(obj) == 1 else ")")
        if kind in (set, frozenset):
            members = "{" + self._items(obj)[1:-1] + "}" if obj else ""
            return members if kind is set and members else f"{kind.__name__}({members})"
        if kind in (OrderedDict, Counter):
            return f"{dotted(kind)}({self._items(obj) if obj else ''})"
        if kind is deque:
            bound = "" if obj.maxlen is None else f", maxlen={obj.maxlen}"
            return f"collections.deque({self._items(obj)}{bound})"
        if kind is defaultdict:
            return f"collections.defaultdict({self.write(obj.default_factory)}, {self._items(obj)})"
        if isinstance(obj, tuple) and hasattr(obj, "_fields"):
            return f"{dotted(kind)}({', '.join(map(self.write, obj))})"
        if kind.__mro__[1] in (list, dict, set) and kind.__init__ is kind.__mro__[1].__init__:
            return f"{dotted(kind)}({self._items(obj) if obj else ''})"
        return None

    def _nested(self, obj: Any) -> str | None:
        """What is the same at every one of many levels, as a loop."""
        several = self._shared | self._cyclic
        for shape, step in _STEPS.items():
            here, depth = obj, 0
            while (inner := step(here)) is not None and (not depth or id(here) not in several):
                here, depth = inner[0], depth + 1
            if depth >= _DEEP:
                return f"functools.reduce(lambda inner, _: {shape}, range({depth}), {self.write(here)})"
        return None

    # ------------------------------------------------------------------------------------------ objects

    def _referred(self, obj: Any) -> str | None:
        """By name."""
        if isinstance(obj, Flag):
            return f"{dotted(type(obj))}({obj.value})"
        if isinstance(obj, Enum):
            return f"{dotted(type(obj))}.{obj.name}"
        if isinstance(obj, GenericAlias):
            return repr(obj)
        if isinstance(obj, ModuleType):
            return obj.__name__
        if isinstance(obj, (type, FunctionType, BuiltinFunctionType)) and "<" not in obj.__qualname__:
            return dotted(obj)
        if isinstance(obj, MethodType):
            return f"{self.write(obj.__self__)}.{obj.__name__}"
        return None

    def _called(self, obj: Any) -> str | None:
        """As a call of its class."""
        kind = type(obj)
        if kind is object:
            return "object()"
        if kind.__mro__[1] in PLAIN:
            base = kind.__mro__[1]
            return self._with_attributes(f"{dotted(kind)}({PLAIN[base](base(obj))})", obj)
        if isinstance(obj, functools.partial):
            words = [self.write(obj.func), *map(self.write, obj.args)]
            words += [f"{name}={self.write(value)}" for name, value in obj.keywords.items()]
            return f"functools.partial({', '.join(words)})"
        if isinstance(obj, _SAY_THEMSELVES) or (is_value(obj) and not is_dataclass(obj)):
            return _own_words(obj)
        if isinstance(obj, array.array):
            return f"array.array({obj.typecode!r}, {self.write(obj.tolist())})"
        if isinstance(obj, BaseException):
            return self._exception(obj)
        given = _arguments(obj)
        if given is None:
            return None
        return f"{dotted(kind)}({', '.join(f'{name}={self.write(value)}' for name, value in given.items())})"

    def _exception(self, obj: BaseException) -> str | None:
        said = _reduced(obj)
        if said[0] is not type(obj):
            return None
        code = f"{dotted(type(obj))}({', '.join(map(self.write, said[1]))})"
        held = list(vars(obj).values())
        if len(held) == len(said[1]) and all(one is other for one, other in zip(held, said[1], strict=True)):
            return code  # its arguments are its attributes
        if any(one is other for one in held for other in said[1]) or said[2:] == ():
            return None if held else code
        return self._with_attributes(code, obj)


_SAY_THEMSELVES = (ipaddress.IPv4Address, ipaddress.IPv6Address, operator.itemgetter, operator.attrgetter)


def _arguments(obj: Any) -> dict[str, Any] | None:
    """By which its class makes it, where they are its attributes; None where nobody knows."""
    kind, state = type(obj), _state(obj)
    if is_dataclass(obj):
        return {each.name: getattr(obj, each.name) for each in fields(obj) if not _is_default(each, obj)}
    if kind is SimpleNamespace:
        return state
    return state if _takes(kind, state) else None


# How what contains itself begins, and what fills it.
_FILLED: dict[type, tuple[str, str]] = {
    list: ("[]", "extend"),
    dict: ("{}", "update"),
    set: ("set()", "update"),
    deque: ("collections.deque()", "extend"),
    OrderedDict: ("collections.OrderedDict()", "update"),
    defaultdict: ("collections.defaultdict(list)", "update"),
}


def _only(kind: type, length: int) -> Callable[[Any], tuple[Any] | None]:
    def step(here: Any) -> tuple[Any] | None:
        of_kind = type(here) is kind
        if not of_kind or len(here) != length:
            return None
        if kind is dict:
            return (here["a"],) if "a" in here else None
        return (here[-1],) if length == 1 or (type(here[0]) is int and here[0] == 0) else None

    return step


_STEPS: dict[str, Callable[[Any], tuple[Any] | None]] = {
    "[inner]": _only(list, 1),
    "(inner,)": _only(tuple, 1),
    "{'a': inner}": _only(dict, 1),
    "[0, inner]": _only(list, 2),
}


def _occurrences(obj: Any) -> tuple[set[int], set[int]]:
    """The ids of what can change and is met twice, and of what contains itself."""
    shared: set[int] = set()
    cyclic: set[int] = set()
    entered: dict[int, Any] = {}
    within: set[int] = set()
    pending: list[tuple[bool, Any]] = [(True, obj)]
    while pending:
        enters, here = pending.pop()
        if not enters:
            within.discard(id(here))
        elif id(here) in entered:
            if not _is_plain(here) or _holds_what_changes(here):
                shared.add(id(here))
                cyclic |= {id(here)} & within
        elif not by_reference(here):
            entered[id(here)] = here
            within.add(id(here))
            pending.append((False, here))
            pending.extend((True, part) for part in reversed(list(_parts(here))))
    return shared - cyclic, cyclic


def _parts(obj: Any) -> Iterable[Any]:
    if isinstance(obj, FunctionType) or is_tensor(obj):
        return ()
    return obj.args if isinstance(obj, BaseException) else held_by(obj)


def _is_plain(obj: Any) -> bool:
    return is_value(obj) or obj is None or obj is Ellipsis or obj is NotImplemented


def _holds_what_changes(value: Any) -> bool:
    """Whether a value holds what can change: then it makes a difference how often there is one of it."""
    pending, met = [value], set()
    while pending:
        here = pending.pop()
        if id(here) not in met:
            met.add(id(here))
            if not _is_plain(here):
                return True
            pending.extend(_parts(here))
    return False


def _state(obj: Any) -> dict[str, Any]:
    slots = [name for kind in type(obj).__mro__ for name in getattr(kind, "__slots__", ())]
    named = {name: getattr(obj, name) for name in slots if not name.startswith("__") and hasattr(obj, name)}
    state = named | dict(getattr(obj, "__dict__", {}))
    state.pop("cache", None)  # which a specimen makes anew
    return state


def _is_default(each: Any, obj: Any) -> bool:
    value = getattr(obj, each.name)
    if each.default_factory is not MISSING:
        return bool(type(value) is each.default_factory and not value)
    return value is each.default


def _takes(kind: type, state: dict[str, Any]) -> bool:
    """Whether the class takes its attributes as arguments of these names."""
    try:
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return False
    return bool(state) and state.keys() <= parameters.keys()


def _reduced(obj: Any) -> Any:
    reducer = copyreg.dispatch_table.get(type(obj))
    return reducer(obj) if reducer else obj.__reduce_ex__(4)


def _own_words(obj: Any) -> str | None:
    """`repr`, below its module, where that is an expression."""
    said, kind = repr(obj), type(obj)
    if said.startswith(kind.__name__ + "("):
        said = f"{_public_module(kind)}.{said}"
    try:
        ast.parse(said, mode="eval")
    except SyntaxError:
        return None
    return said


def _public_module(kind: type) -> str:
    """Where to import `kind` from: Python 3.13 says ``pathlib._local`` of what one knows from ``pathlib``."""
    module = kind.__module__.lstrip("_")
    above = module.partition("._")[0]
    return above if getattr(sys.modules.get(above), kind.__name__, None) is kind else module


def _pickled(obj: Any) -> str:
    said = _reduced(obj)
    if isinstance(said, str):
        return f"{type(obj).__module__.rpartition('.')[2]}.{said}"
    code = f"pickle.loads({pickle.dumps(obj, 5)!r})"
    return code if len(code) <= _LONGEST_PICKLE else _shown(obj)


def _shown(obj: Any) -> str:
    """What is for the eye alone: no Python, in whatever it is a part of."""
    said = repr(obj)
    return said if said.startswith("<") else f"<{said}>"
