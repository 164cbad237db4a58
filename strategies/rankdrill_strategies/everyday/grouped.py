"""Lists, tuples, dicts and sets that hand-written encoders take for something else."""

from __future__ import annotations

import array
import random
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace

from rankdrill_strategies import specimens
from rankdrill_strategies.everyday.table import Table, fixed

__all__ = ["DICTS", "EMPTY", "KEYS", "LISTS", "SETS", "TUPLES"]

EMPTY: Table = (
    *(list, tuple, dict, set, frozenset, str, bytes, bytearray, int, float, bool, complex, deque, OrderedDict, Counter),
    lambda: defaultdict(list),
    lambda: range(0),
    lambda: array.array("d"),
    lambda: deque(maxlen=0),
    lambda: [[]],
    lambda: ((),),
    lambda: {"": {}},
    lambda: [{}, ()],
    lambda: [None],
    lambda: (None,),
    lambda: {None: None},
    lambda: [""],
    lambda: [b""],
    SimpleNamespace,
    specimens.TaggedList,
    specimens.TaggedDict,
    lambda: specimens.Rights(0),
    lambda: specimens.Level.LOW,
)

LISTS: Table = (
    lambda: [0],
    lambda: [None, None],
    lambda: [1, None],
    lambda: [1, 2],
    lambda: [2, 1],
    lambda: [1, True, 1.0],
    lambda: [0, False, 0.0, -0.0],
    lambda: [1, 2.5],
    lambda: [True, False],
    lambda: [[1, 2], [3, 4]],
    lambda: [[1], [2, 3]],
    lambda: ["a", "b"],
    lambda: ["a", "bb"],
    lambda: ["a", b"a", bytearray(b"a")],
    lambda: [1, "1"],
    lambda: [b"a", b""],
    lambda: [(1, 2), [1, 2]],
    lambda: [{"a": 1}, {"b": 2}],
    lambda: [float("nan"), 1.0],
    lambda: [0.1, 0.2],
    lambda: [1 << 31, 1],
    lambda: [0] * 255,
    lambda: [0] * 256,
    lambda: list(range(1001)),  # pickle writes lists in batches of 1 000
    lambda: ["a"] * 1000,
    lambda: deque([1, 2, 3], maxlen=3),
    lambda: array.array("d", [0.5]),
    lambda: array.array("q", [-1]),
    lambda: bytearray(b"a\0"),
)

TUPLES: Table = (
    lambda: (0,),
    lambda: (None,),
    lambda: (1, 2),
    lambda: ((1, 2), (3, 4)),
    lambda: ([],),
    lambda: ("a", 1),
    lambda: (1, (2, (3,))),
    lambda: ("error", "no"),
    lambda: (0, None),
    lambda: specimens.Couple(1, 2),
    lambda: (0,) * 256,
    lambda: {"shape": (2, 3)},
    lambda: [(0, 1)],
)


def _many(count: int) -> dict[str, int]:
    """Keys in an order that neither sorting nor hashing gives."""
    names = [f"k{number}" for number in range(count)]
    random.Random(count).shuffle(names)
    return {name: number for number, name in enumerate(names)}


DICTS: Table = (
    lambda: {"a": None},
    lambda: {"b": 0, "a": 1},
    lambda: {0: "a"},
    lambda: {1: "a", "1": "b"},
    lambda: {2: "a", 1: "b"},
    lambda: {10: "a", 9: "b"},
    lambda: {1: "a", "a": 1},
    lambda: {None: 0},
    lambda: {None: 0, "None": 1},
    lambda: {True: "a"},
    lambda: {True: 1, "True": 2},
    lambda: {(1, 2): "a"},
    lambda: {0.5: "a"},
    lambda: {1.0: "a"},
    lambda: {float("nan"): 1},
    lambda: {b"a": 1},
    lambda: {b"a": 1, "a": 2},
    lambda: {frozenset([1]): 1},
    lambda: {specimens.Colour.RED: 1},
    lambda: {specimens.Level.HIGH: 1},
    lambda: {"": 0},
    lambda: {"a.b": 0, "a": {"b": 1}},
    lambda: {"a b": 0},
    lambda: {"é": 1, "€": 2},
    lambda: {"self": 1, "class": 2},
    lambda: {"__class__": "int"},
    lambda: {"type": "tuple", "data": [1]},
    lambda: {"a": {"b": {"c": [1]}}},
    lambda: {1 << 63: 0},
    lambda: {"error": None},
    lambda: _many(12),
    lambda: _many(300),
    lambda: dict.fromkeys(range(1001)),
    lambda: OrderedDict(b=1, a=2),
    lambda: defaultdict(list, a=[1]),
    lambda: Counter("aab"),
)

SETS: Table = (
    lambda: {0},
    lambda: {1, 2},
    lambda: {"a"},
    lambda: {"b", "a", "c"},
    lambda: frozenset({1}),
    lambda: {None},
    lambda: {1, "a"},
    lambda: {(1, 2)},
    lambda: {frozenset({1})},
    lambda: {0.5, float("nan")},
    lambda: {8, 0, 16},
    lambda: set(range(300)),
    lambda: {"a": {1, 2}},
    lambda: [{1}, frozenset({1})],
    lambda: {specimens.Frozen(1)},
)

# Of a dict, in their order.
KEYS = fixed(
    *((), ("a",), ("b", "a"), ("a", "b"), (0,), (1, 0), (1, "1"), (None,), (True, "a"), ("c", "a", "b"), ((1, 2), "a")),
    *(("loss", "step", "grad"), (b"a", "a"), (0.5, 1), ("", "a"), (-1, 0), ("é", "€"), (10, 9), ("10", "9")),
)
