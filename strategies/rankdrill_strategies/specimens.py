"""One class of each way to be picklable, importable by any process that has to unpickle one.

They are plain on purpose: no comparison between them is needed, `same` looks at what they say of themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, Flag, IntEnum, StrEnum, auto
from typing import Any, NamedTuple

__all__ = [
    "NOTHING",
    "Colour",
    "Couple",
    "Frozen",
    "FrozenSlotted",
    "HalfSlotted",
    "Level",
    "Mode",
    "NewArguments",
    "Node",
    "Nothing",
    "Outer",
    "Prickly",
    "Record",
    "Reduced",
    "RefusalError",
    "Rights",
    "Slotted",
    "Stateful",
    "TaggedDict",
    "TaggedInt",
    "TaggedList",
    "twice",
]


@dataclass
class Record:
    """A mutable dataclass."""

    name: Any = None
    payload: Any = None


@dataclass(slots=True)
class Slotted:
    """A mutable dataclass without `__dict__`."""

    first: Any = None
    second: Any = None


@dataclass(frozen=True)
class Frozen:
    """A frozen dataclass: hashable where its fields are."""

    x: Any = None
    y: Any = None


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    """A frozen dataclass without `__dict__`; pickled through `__getstate__` as a list of values."""

    x: Any = None
    y: Any = None


class HalfSlotted:
    """A slot and a `__dict__`, so the state is a pair; the slot may be unset."""

    __slots__ = ("__dict__", "slot")

    def __init__(self, slot: Any = None, free: Any = None) -> None:
        if slot is not None:
            self.slot = slot
        self.free = free


class Couple(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any


class Colour(Enum):
    """An enum whose values are no ints."""

    RED = "red"
    GREEN = ("green", 2)


class Level(IntEnum):
    """Members that equal ints, and are none."""

    LOW = 0
    HIGH = 1


class Mode(StrEnum):
    """Members that equal strings, and are none."""

    FAST = "fast"


class Rights(Flag):
    """Members that combine."""

    READ = auto()
    WRITE = auto()
    RUN = auto()


class Reduced:
    """Pickled by `__reduce__` as a call of its class."""

    def __init__(self, payload: Any = None) -> None:
        self.payload = payload

    def __reduce__(self) -> tuple[type[Reduced], tuple[Any]]:
        return Reduced, (self.payload,)


class Stateful:
    """Pickled by `__getstate__`, which leaves a cache behind that `__setstate__` makes anew."""

    def __init__(self, payload: Any = None) -> None:
        self.payload = payload
        self.cache: Callable[[], Any] = lambda: self.payload  # cannot be pickled

    def __getstate__(self) -> tuple[str, Any]:
        return "state of version 1", self.payload

    def __setstate__(self, state: tuple[str, Any]) -> None:
        _, self.payload = state
        self.cache = lambda: self.payload


class NewArguments:
    """Pickled by `__getnewargs_ex__`: made anew with a keyword argument."""

    payload: Any

    def __new__(cls, *, payload: Any = None) -> NewArguments:
        self = super().__new__(cls)
        self.payload = payload
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), {"payload": self.payload}


class RefusalError(Exception):
    """An exception that carries more than its arguments."""

    def __init__(self, payload: Any = None) -> None:
        super().__init__(payload)
        self.payload = payload


class Nothing:
    """A singleton, pickled by reference through a `__reduce__` that returns its name."""

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


class Prickly:
    """Refuses `==`, `bool()` and `hash()`: what carries a payload has no business comparing it."""

    __hash__ = None  # type: ignore[assignment]  # that is the point

    def __init__(self, payload: Any = None) -> None:
        self.payload = payload

    def __eq__(self, other: object) -> bool:
        raise TypeError("a payload was compared")

    def __bool__(self) -> bool:
        raise TypeError("a payload was asked whether it is true")


class TaggedList(list[Any]):
    """A list with attributes."""

    tag: Any = None


class TaggedDict(dict[Any, Any]):
    """A dict with attributes."""

    tag: Any = None


class TaggedInt(int):
    """An int with attributes."""

    tag: Any = None


@dataclass(eq=False)
class Node:
    """A node of a graph; hashed by identity, so that sets of nodes may lead back to themselves."""

    label: Any = None
    links: list[Any] = field(default_factory=list)
    friends: set[Any] = field(default_factory=set)
    team: frozenset[Any] = frozenset()


class Outer:
    """A namespace: what is nested is pickled by its qualified name."""

    class Inner:
        """A nested class."""

        def __init__(self, payload: Any = None) -> None:
            self.payload = payload

    @staticmethod
    def triple(value: Any) -> list[Any]:
        """A function pickled by a qualified name."""
        return [value, value, value]

    @classmethod
    def make(cls) -> Outer:
        """A class method: pickled as a look-up on its class."""
        return cls()


def twice(value: Any) -> list[Any]:
    """A function pickled by reference."""
    return [value, value]
