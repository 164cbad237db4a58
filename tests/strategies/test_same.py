"""`same` says yes to what is the same, no to every other thing, and where."""

from __future__ import annotations

import copy
import datetime
import functools
import math
import re
import struct
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath
from types import FunctionType, SimpleNamespace
from typing import Any

import cloudpickle
import numpy
import pytest
import torch

from rankdrill.errors import UsageError
from rankdrill_strategies import explain_difference, same, specimens
from rankdrill_strategies.specimens import Record

nan = math.nan


def _nan(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


def _structured(x: float, y: int) -> Any:
    return numpy.array([(x, y)], dtype=[("x", "f4"), ("y", "i2")])


def _tagged(obj: Any, tag: Any) -> Any:
    obj.tag = tag
    return obj


def _closure(enclosed: Any) -> Callable[[], Any]:
    return lambda: enclosed


def _by_keyword(default: Any) -> Callable[..., Any]:
    def function(*, value: Any = default) -> Any:
        return value

    return function


def _with_attribute(tag: Any) -> Callable[..., Any]:
    def function() -> None: ...

    return _tagged(function, tag)  # type: ignore[no-any-return]  # the very function


def _calls_itself(unset: bool) -> Callable[[], Any]:
    def function() -> Any:
        return other() or function()

    if not unset:
        other = _by_keyword(1)
    return function


class Fickle:
    """Pickled by name at one time, as a call at another."""

    def __init__(self, *, by_name: bool) -> None:
        self.by_name = by_name

    def __reduce__(self) -> str | tuple[Any, ...]:
        return "NOTHING" if self.by_name else (Fickle, ())


class Triple(tuple[int, int, int]):
    """A tuple whose items have no names."""


class Named(namedtuple("Named", ["seen", "cached"])):
    """A named tuple that can have attributes besides its fields."""


class Reduced(Named):
    """One that leaves out its cache."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Reduced, (self.seen, None)


class ReducedByProtocol(Named):
    """One that leaves out its cache the other way."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return ReducedByProtocol, (self.seen, None)


def _not_coalesced() -> torch.Tensor:
    whole = torch.eye(2).to_sparse()
    return torch.sparse_coo_tensor(whole.indices(), whole.values(), (2, 2))


def _caused(error: Exception) -> Exception:
    error.__cause__ = KeyError("why")
    return error


def _asked_for_its_fill_value() -> Any:
    array = numpy.ma.array([1], mask=[True])
    assert array.fill_value == 999999
    return array


def _noted(note: str) -> Exception:
    error = ValueError(1)
    error.add_note(note)
    return error


def _object_array(*items: Any) -> Any:
    array = numpy.empty(len(items), dtype=object)
    array[:] = items
    return array


MASKED = f"{numpy.ma.MaskedArray.__module__}.MaskedArray"  # numpy 1 says numpy.ma.core
DIFFERENT: list[tuple[Any, Any, str]] = [
    # atoms
    (1, 2, "$: 1 != 2"),
    (1, True, "$: int != bool"),
    (1, 1.0, "$: int != float"),
    (0.0, -0.0, "$: 0.0 != -0.0"),
    (nan, 0.0, "$: nan != 0.0"),
    (complex(0, 0.0), complex(0, -0.0), "$: 0j != -0j"),
    (complex(nan, 1), complex(nan, 2), "$: (nan+1j) != (nan+2j)"),
    ("a", "b", "$: 'a' != 'b'"),
    ("a", b"a", "$: str != bytes"),
    (b"a", bytearray(b"a"), "$: bytes != bytearray"),
    (bytearray(b"a"), bytearray(b"b"), "$: bytearray(b'a') != bytearray(b'b')"),
    (None, Ellipsis, "$: NoneType != ellipsis"),
    (specimens.Level.LOW, 0, "$: rankdrill_strategies.specimens.Level != int"),
    (specimens.Level.LOW, specimens.Level.HIGH, "$: <Level.LOW: 0> != <Level.HIGH: 1>"),
    (specimens.Record, specimens.Slotted, "$: <class 'rankdrill_st"),
    (len, max, "$: 'len' != 'max'"),
    (range(0, 3, 2), range(0, 4, 2), "$.__reduce_ex__(4)[1][1]: 3 != 4"),
    (slice(1), slice(2), "$.__reduce_ex__(4)[1][1]: 1 != 2"),
    (Decimal("1.0"), Decimal("1.00"), "$.__reduce_ex__(4)[1][0]: '1.0' != '1.00'"),
    (Decimal("NaN"), Decimal("sNaN"), "$.__reduce_ex__(4)[1][0]: 'NaN' != 'sNaN'"),
    (Fraction(1, 2), Fraction(1, 3), "$.__reduce_ex__(4)[1]"),
    (
        datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC),
        datetime.datetime(2020, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        "$.__reduce_ex__(4)[1][0]: ",
    ),
    (
        datetime.datetime(2020, 1, 1),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        "$.__reduce_ex__(4)[1]: 1 items != 2 items",
    ),
    # containers
    ([1, 2], [1, 3], "$[1]: 2 != 3"),
    ([1, 2], [1], "$: 2 items != 1 items"),
    ([1], (1,), "$: list != tuple"),
    ((1, [2]), (1, [3]), "$[1][0]: 2 != 3"),
    ({"a": 1}, {"a": 2}, "$['a']: 1 != 2"),
    ({"a": 1}, {"b": 1}, "$.keys()[0]: 'a' != 'b'"),
    ({"a": 1}, {}, "$: 1 keys != 0 keys"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "$.keys()[0]: 'a' != 'b'"),
    ({1: 0}, {1.0: 0}, "$.keys()[0]: int != float"),
    ({1: 0}, {True: 0}, "$.keys()[0]: int != bool"),
    ({nan: 1}, {nan: 2}, "$[nan]: 1 != 2"),
    ({"x": {"y": [0, {"z": nan}]}}, {"x": {"y": [0, {"z": 0.0}]}}, "$['x']['y'][1]['z']: nan != 0.0"),
    ({1, 2}, {1, 3}, "$: 2 only on the left"),
    (set(), {1}, "$: 0 members != 1 members"),
    ({1}, frozenset({1}), "$: set != frozenset"),
    ({1}, {1.0}, "$: 1 only on the left"),
    ({0.0}, {-0.0}, "$: 0.0 only on the left"),
    ({nan}, {0.0}, "$: nan only on the left"),
    ({nan, float("nan"), 1}, {nan, 1, 2}, "$: nan only on the left"),
    ({(1, nan)}, {(2, nan)}, "$: (1, nan) only on the left"),
    ({(1, 2)}, {specimens.Couple(1, 2)}, "$: (1, 2) only on the left"),
    ({frozenset({(1,)})}, {frozenset({(1.0,)})}, "$: frozenset({(1,)}) only on the left"),
    ({specimens.Frozen(1)}, {specimens.Frozen(2)}, "$: no member on the right is the same as Frozen(x=1, y=None)"),
    ([{1}, {2}], [{1}, {3}], "$[1]: 2 only on the left"),
    ({1, specimens.Frozen(1)}, {1, 2}, "$: 2 only on the right"),
    (deque([1]), deque([2]), "$[0]: 1 != 2"),
    (deque([1]), deque([1], maxlen=3), "$.__reduce_ex__(4)[1]: 0 items != 2 items"),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1), "$.keys()[0]: 'a' != 'b'"),
    (OrderedDict(a=1), {"a": 1}, "$: collections.OrderedDict != dict"),
    (defaultdict(list), defaultdict(int), "$.__reduce_ex__(4)[1][0]: <class 'list'> != <class 'int'>"),
    (Counter("a"), Counter("aa"), "$.__reduce_ex__(4)[1][0]['a']: 1 != 2"),
    (specimens.Couple(1, 2), (1, 2), "$: rankdrill_strategies.specimens.Couple != tuple"),
    (specimens.Couple(1, 2), specimens.Couple(1, 3), "$.right: 2 != 3"),
    # objects
    (Record(1), Record(2), "$.name: 1 != 2"),
    (specimens.Slotted(1), specimens.Slotted(2), "$.first: 1 != 2"),
    (specimens.Frozen(1), specimens.Frozen(2), "$.x: 1 != 2"),
    (specimens.FrozenSlotted(1), specimens.FrozenSlotted(2), "$.x: 1 != 2"),
    (specimens.HalfSlotted(1), specimens.HalfSlotted(2), "$.slot: 1 != 2"),
    (Triple([1, 2, 3]), Triple([1, 2, 4]), "$.__reduce_ex__(4)[1][1][2]: 3 != 4"),
    (Named(1, 2), Named(1, 3), "$.cached: 2 != 3"),
    (_tagged(Named(1, 2), 3), _tagged(Named(1, 2), 4), "$.tag: 3 != 4"),
    (_tagged(Named(1, 2), 3), Named(1, 2), "$.tag: only on the left"),
    (specimens.HalfSlotted(1), specimens.HalfSlotted(), "$.slot: only on the left"),
    (specimens.HalfSlotted(), specimens.HalfSlotted(1), "$.slot: only on the right"),
    (specimens.HalfSlotted(1, 2), specimens.HalfSlotted(1, 3), "$.free: 2 != 3"),
    (specimens.Reduced(1), specimens.Reduced(2), "$.__reduce_ex__(4)[1][0]: 1 != 2"),
    (specimens.Stateful(1), specimens.Stateful(2), "$.__getstate__()[1]: 1 != 2"),
    (
        specimens.NewArguments(payload=1),
        specimens.NewArguments(payload=2),
        "$.__reduce_ex__(4)[1][2]['payload']: 1 != 2",
    ),
    (specimens.RefusalError(1), specimens.RefusalError(2), "$.__reduce_ex__(4)[1][0]: 1 != 2"),
    (ValueError(1), ValueError(2), "$.__reduce_ex__(4)[1][0]: 1 != 2"),
    (specimens.TaggedList([1]), specimens.TaggedList([2]), "$[0]: 1 != 2"),
    (SimpleNamespace(a=1), SimpleNamespace(a=2), "$.a: 1 != 2"),
    (specimens.TaggedInt(1), specimens.TaggedInt(2), "$.__reduce_ex__(4)[1][1]: 1 != 2"),
    (specimens.twice, specimens.Outer.triple, "$: functions with another __qualname__"),
    (_closure(1), _closure(2), "$.__closure__[0]: 1 != 2"),
    (lambda: 1, lambda: 2, "$: functions with another __code__"),
    (
        functools.partial(specimens.twice, 1),
        functools.partial(specimens.twice, 2),
        "$.args[0]: 1 != 2",
    ),
    (functools.partial(repr, 1), functools.partial(abs, 1), "$.func: 'repr' != 'abs'"),
    (functools.partial(dict, a=1), functools.partial(dict, a=2), "$.keywords['a']: 1 != 2"),
    (_by_keyword(1), _by_keyword(2), "$.__kwdefaults__['value']: 1 != 2"),
    (_with_attribute(1), _with_attribute(2), "$.__dict__['tag']: 1 != 2"),
    (specimens.Outer(), _tagged(specimens.Outer(), 1), "$.tag: only on the right"),
    (Fickle(by_name=True), Fickle(by_name=False), "$: 'NOTHING' != "),
    (threading.Lock(), threading.Lock(), "$: two objects of _thread.lock, which do not pickle"),
    # arrays
    (numpy.zeros(2), numpy.zeros(2, "f4"), "$: array dtype float64 != float32"),
    (numpy.zeros(2), numpy.zeros((2, 1)), "$: array shape (2,) != (2, 1)"),
    (numpy.zeros(3), numpy.array([0, 1, 1.0]), "$: array differs at [1]: 0.0 != 1.0 (2 of 3 elements)"),
    (numpy.zeros(()), numpy.ones(()), "$: array differs: 0.0 != 1.0 (1 of 1 elements)"),
    (numpy.zeros(1), -numpy.zeros(1), "$: array differs at [0]: 0.0 != -0.0 (1 of 1 elements)"),
    (numpy.zeros(1, "c8"), numpy.array([-0.0j], "c8").conj(), "$: array differs at [0]"),
    (numpy.array([1 + 1j]), numpy.array([1 + 2j]), "$: array differs at [0]: (1+1j) != (1+2j)"),
    (numpy.array([nan]), numpy.array([1.0]), "$: array differs at [0]: nan != 1.0"),
    (numpy.array([1.0]), numpy.array([nan]), "$: array differs at [0]: 1.0 != nan"),
    (numpy.array([1, 2]), numpy.array([1, 3]), "$: array differs at [1]: 2 != 3"),
    (numpy.array(["NaT"], "M8[s]"), numpy.array([1], "M8[s]"), "$: array differs at [0]"),
    (numpy.zeros(1, "M8[s]"), numpy.zeros(1, "M8[ms]"), "$: array dtype datetime64[s] != datetime64[ms]"),
    (numpy.array(["a"]), numpy.array(["b"]), "$: array differs at [0]: 'a' != 'b'"),
    (numpy.array([b"\1\0"], "V2"), numpy.array([b"\1\1"], "V2"), "$: array differs at [0]"),
    (_structured(1, 2), _structured(1, 3), "$['y']: array differs at [0]: 2 != 3"),
    (_object_array(1), _object_array(1.0), "$[0]: int != float"),
    (_object_array([1]), _object_array([2]), "$[0][0]: 1 != 2"),
    (numpy.float32(1), numpy.float32(2), "$: array differs: 1.0 != 2.0"),
    (numpy.float64(1), 1.0, "$: numpy.float64 != float"),
    (numpy.float64(1), numpy.ones(()), "$: numpy.float64 != numpy.ndarray"),
    (
        numpy.ma.array([1, 2], mask=[False, True]),
        numpy.ma.array([1, 2], mask=[True, False]),
        "$.mask: array differs at [0]",
    ),
    (
        numpy.ma.array([1, 2], mask=[False, True]),
        numpy.ma.array([1, 3], mask=[False, True]),
        "$.data: array differs at [1]",
    ),
    (numpy.ma.array([1], fill_value=2), numpy.ma.array([1], fill_value=3), "$.fill_value: array differs: 2 != 3"),
    (
        numpy.ma.array([1], mask=[False]),
        numpy.array([1]),
        f"$: {numpy.ma.MaskedArray.__module__}.MaskedArray != numpy.ndarray",
    ),
    (numpy.ma.masked, None, "$: numpy.ma.core.MaskedConstant != NoneType"),
    # exceptions
    (_noted("a"), ValueError(1), "$.__notes__: only on the left"),
    (_noted("a"), _noted("b"), "$.__notes__[0]: 'a' != 'b'"),
    (OSError(2, "a", "b"), OSError(2, "a", "c"), "$.__reduce_ex__(4)[1][2]: 'b' != 'c'"),
    (ExceptionGroup("a", [ValueError(1)]), ExceptionGroup("a", [ValueError(2)]), "$.__reduce_ex__(4)[1][1][0]"),
    # tensors
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64), "$: tensor dtype float32 != float64"),
    (torch.zeros(2), torch.zeros(2, 1), "$: tensor shape (2,) != (2, 1)"),
    (torch.zeros(2), torch.zeros(2, device="meta"), "$: tensor device cpu != meta"),
    (torch.zeros(2), torch.zeros(2, requires_grad=True), "$: tensor requires_grad False != True"),
    (torch.zeros(2), torch.zeros(2).to_sparse(), "$: tensor layout strided != sparse_coo"),
    (torch.zeros(2), torch.nn.Parameter(torch.zeros(2)), "$: torch.Tensor != torch.nn.parameter.Parameter"),
    (torch.zeros(3), torch.tensor([0, 1.0, 1]), "$: tensor differs at [1]: 0.0 != 1.0 (2 of 3 elements)"),
    (torch.zeros(1), -torch.zeros(1), "$: tensor differs at [0]: 0.0 != -0.0"),
    (torch.tensor(nan), torch.tensor(1.0), "$: tensor differs: nan != 1.0"),
    (torch.tensor(1.0), torch.tensor(nan), "$: tensor differs: 1.0 != nan"),
    (torch.tensor([1j]), torch.tensor([2j]), "$: tensor differs at [0, 1]: 1.0 != 2.0"),
    (torch.tensor([True]), torch.tensor([False]), "$: tensor differs at [0]: True != False"),
    (torch.tensor([1j]), torch.tensor([1j]).conj(), "$: tensor differs at [0, 1]: 1.0 != -1.0"),
    (torch.eye(2).to_sparse(), torch.eye(2).fliplr().to_sparse(), "$._indices(): tensor differs at [1, 0]: 0 != 1"),
    (torch.eye(2).to_sparse(), (2 * torch.eye(2)).to_sparse(), "$._values(): tensor differs at [0]: 1.0 != 2.0"),
    (_tagged(torch.zeros(1), 1), _tagged(torch.zeros(1), 2), "$.__dict__['tag']: 1 != 2"),
    (_tagged(torch.zeros(1), 1), torch.zeros(1), "$.__dict__: 1 keys != 0 keys"),
    ({"x": [0, torch.zeros(1)]}, {"x": [0, torch.ones(1)]}, "$['x'][1]: tensor differs at [0]: 0.0 != 1.0"),
]


@pytest.mark.parametrize(("left", "right", "said"), DIFFERENT, ids=[said[:40] for _, _, said in DIFFERENT])
def test_different_things_differ_and_it_says_where(left: Any, right: Any, said: str) -> None:
    explained = explain_difference(left, right)
    assert explained is not None
    assert explained.startswith(said)
    assert not same(left, right)
    assert not same(right, left)
    assert same(left, left)
    assert same(right, right)


SAME: list[tuple[str, Any, Any]] = [
    ("NaN", nan, float("nan")),
    ("NaN of another sign and payload", _nan(0x7FF8000000000000), _nan(0xFFF8000000000001)),
    ("NaN in a complex number", complex(nan, 1), complex(float("nan"), 1)),
    ("equal ints that are two objects", 2**70, 2**71 // 2),
    ("sets in another order", {8, 0, 1}, {1, 0, 8}),
    ("NaN in a set", {nan, 1}, {float("nan"), 1}),
    ("as many NaNs in a set", {_nan(0x7FF8 << 48), _nan(0xFFF8 << 48)}, {float("nan"), -float("nan")}),
    ("NaN as a key", {nan: 1}, {float("nan"): 1}),
    ("objects in a set", {specimens.Frozen(1), specimens.Frozen(2)}, {specimens.Frozen(2), specimens.Frozen(1)}),
    ("frozensets of tuples", {frozenset({(1, nan)})}, {frozenset({(1, float("nan"))})}),
    ("attributes set in another order", SimpleNamespace(a=1, b=2), SimpleNamespace(b=2, a=1)),
    ("a cache that is not part of the state", specimens.Stateful(1), specimens.Stateful(1)),
    ("a cache of a named tuple", Reduced(1, 2), Reduced(1, 3)),
    ("a cache of a named tuple that knows the protocol", ReducedByProtocol(1, 2), ReducedByProtocol(1, 3)),
    ("a shape", torch.Size([2, 3]), torch.Size([2, 3])),
    ("views of one array, and of two", [(v := numpy.arange(3))[:2], v[1:]], [numpy.arange(2), numpy.arange(1, 3)]),
    ("views of one tensor, and of two", [(w := torch.arange(3))[:2], w[1:]], [torch.arange(2), torch.arange(1, 3)]),
    ("whether it is known to be coalesced", torch.eye(2).to_sparse(), _not_coalesced()),
    ("the cause of an exception", _caused(ValueError("a")), ValueError("a")),
    ("masked arrays, one asked for its fill value", numpy.ma.array([1], mask=[True]), _asked_for_its_fill_value()),
    ("functions by value", _closure([1]), _closure([1])),
    ("two that arrive as one singleton", specimens.NOTHING, specimens.Nothing()),
    ("functions that call themselves", _calls_itself(unset=False), _calls_itself(unset=False)),
    ("functions with a name yet unset", _calls_itself(unset=True), _calls_itself(unset=True)),
    ("NaN in arrays", numpy.array([nan, 1]), numpy.array([-nan, 1])),
    ("NaT", numpy.array(["NaT"], "M8[s]"), numpy.array(["NaT"], "M8[s]")),
    ("memory order", numpy.ones((2, 3)), numpy.asfortranarray(numpy.ones((2, 3)))),
    ("byte order", numpy.array([1, 2], ">i4"), numpy.array([1, 2], "<i4")),
    ("byte order of a date", numpy.array([7], ">M8[s]"), numpy.array([7], "<M8[s]")),
    ("negative strides", numpy.arange(3)[::-1], numpy.array([2, 1, 0])),
    ("long doubles, whatever their padding", numpy.array([1, nan], "g"), numpy.array([1, nan], "g").copy()),
    ("NaN in tensors", torch.tensor([nan, 1]), torch.tensor([-nan, 1])),
    ("NaN in bfloat16", torch.tensor([nan]).bfloat16(), torch.tensor([-nan]).bfloat16()),
    ("NaN in complex tensors", torch.tensor([complex(nan, 1)]), torch.tensor([complex(-nan, 1)])),
    ("strides", torch.arange(6).reshape(2, 3).t(), torch.arange(6).reshape(2, 3).t().contiguous()),
    ("a conjugate yet to be computed", torch.tensor([1j]).conj(), torch.tensor([complex(0, -1)])),
    ("a view of a larger storage", torch.arange(9)[2:4], torch.tensor([2, 3])),
    ("tensors without elements", torch.zeros(2, device="meta"), torch.ones(2, device="meta")),
    ("one tuple, two equal tuples", [(t := (1, 2)), t], [(1, 2), (0 + 1, 2)]),
    ("one frozen dataclass, two equal ones", [(f := specimens.Frozen(1)), f], [specimens.Frozen(1), copy.copy(f)]),
    ("one alias, two", [(a := list[int]), a], [list[int], list[int]]),
    ("one numpy scalar, two", [(n := numpy.float32(1)), n], [numpy.float32(1), numpy.float32(1)]),
]


@pytest.mark.parametrize(("left", "right"), [pair[1:] for pair in SAME], ids=[pair[0] for pair in SAME])
def test_what_is_the_same_to_its_holder_is_the_same(left: Any, right: Any) -> None:
    assert explain_difference(left, right) is None
    assert explain_difference(right, left) is None


def test_the_newer_dtypes_are_compared_by_bits() -> None:
    octets = torch.arange(8, dtype=torch.uint8)
    other = octets.clone()
    other[3] ^= 1
    for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn_x2"):
        if hasattr(torch, name):
            dtype = getattr(torch, name)
            assert same(octets.view(dtype), octets.clone().view(dtype))
            assert not same(octets.view(dtype), other.view(dtype))


def test_float8_nan_is_nan() -> None:
    one, other = torch.tensor([[0x7F, 1], [0xFF, 1]], dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert same(one, other)


def test_an_object_that_does_not_pickle_is_the_same_only_as_itself() -> None:
    lock = threading.Lock()
    assert same([lock], [lock])
    assert not same([lock], [threading.Lock()])


OTHER_LAYOUTS: dict[str, Callable[[float], torch.Tensor]] = {
    "compressed rows": lambda number: (torch.eye(2) * number).to_sparse_csr(),
    "compressed columns": lambda number: (torch.eye(2) * number).to_sparse_csc(),
    "blocks by rows": lambda number: (torch.eye(2) * number).to_sparse_bsr((1, 1)),
    "blocks by columns": lambda number: (torch.eye(2) * number).to_sparse_bsc((1, 1)),
    "coordinates": lambda number: (torch.eye(2) * number).to_sparse(),
    "hybrid": lambda number: (torch.ones(2, 2) * number).to_sparse(1),
    "quantized": lambda number: torch.quantize_per_tensor(torch.ones(2) * number, 0.1, 0, torch.qint8),
    "another scale": lambda number: torch.quantize_per_tensor(torch.zeros(2), 0.1 * number, 0, torch.qint8),
    "quantized by channel": lambda number: torch.quantize_per_channel(
        torch.ones(2, 2) * number, torch.tensor([0.1, 0.1]), torch.tensor([0, 0]), 0, torch.qint8
    ),
    "mkldnn": lambda number: (torch.ones(2) * number).to_mkldnn(),
    "nested": lambda number: torch.nested.nested_tensor([torch.ones(2) * number, torch.zeros(3)]),
    "jagged": lambda number: torch.nested.nested_tensor([torch.ones(2) * number, torch.zeros(3)], layout=torch.jagged),
    "negated lazily": lambda number: torch.tensor([1j * number]).conj().imag,
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch calls most of these a prototype
@pytest.mark.parametrize("layout", OTHER_LAYOUTS)
def test_tensors_of_other_layouts_are_compared_by_their_parts(layout: str) -> None:
    make = OTHER_LAYOUTS[layout]
    one, other = make(1), make(2)
    assert explain_difference([one, one], [one, one]) is None
    assert same(one, make(1))
    assert not same(one, other)
    assert not same(other, one)


def test_what_has_no_elements_to_compare_is_refused_rather_than_called_different() -> None:
    from torch._subclasses import FakeTensorMode

    fake = FakeTensorMode().from_tensor(torch.ones(2))
    with pytest.raises(UsageError, match=r"\$\[0\]: cannot compare strided float32 tensors; compare what"):
        same([fake], [fake])


def test_classes_of_one_name_are_told_apart() -> None:
    def make() -> type:
        return type("Twin", (), {"__module__": "elsewhere"})

    assert explain_difference(make()(), make()()) == "$: elsewhere.Twin != elsewhere.Twin (another class of that name)"


def test_classes_of_two_names_need_no_telling_apart() -> None:
    assert explain_difference(1, 1.0) == "$: int != float"


def test_functions_that_differ_are_both_named() -> None:
    explained = str(explain_difference(specimens.twice, specimens.Outer.triple))
    assert re.match(r"\$: functions with another __qualname__: <function twice.* != <function Outer\.triple", explained)


def test_a_message_survives_a_repr_that_raises() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert "Mute" in str(explain_difference({Mute()}, {object()}))
    # Python refuses to print an int of so many digits.
    assert explain_difference(10**5000, 1) == "$: <int> != 1"


def test_a_message_is_short_whatever_the_payload() -> None:
    explained = explain_difference(["x" * 10_000], ["y" * 10_000])
    assert explained is not None
    assert len(explained) < 200


def test_payloads_are_never_compared_by_their_own_equality() -> None:
    assert same(specimens.Prickly([specimens.Prickly()]), specimens.Prickly([specimens.Prickly()]))
    assert not same(specimens.Prickly([specimens.Prickly()]), specimens.Prickly([specimens.Prickly(1)]))


def test_a_function_carried_by_value_is_the_same() -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(a, b=[1]):\n    return a, b", scope)
    carried = cloudpickle.loads(cloudpickle.dumps(scope["f"]))
    assert isinstance(carried, FunctionType)
    assert carried is not scope["f"]
    assert same(carried, scope["f"])
    carried.__defaults__ = ([2],)
    assert explain_difference(carried, scope["f"]) == "$.__defaults__[0][0]: 2 != 1"


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({(1, 2)}, {(1, 2)}, True),
        ({(1, 2)}, {(2, 1)}, False),
        ({(1, 1, 2)}, {(1, 2, 2)}, False),
        ({frozenset([0, 8])}, {frozenset([8, 0])}, True),  # they collide, so each is walked in its own order
        ({frozenset([0, 8])}, {frozenset([0, 16])}, False),
        ({1j}, {1j}, True),
        ({1j}, {2j}, False),
        ({complex(nan, 1)}, {complex(nan, 1)}, True),
        ({(1j, "a")}, {(1j, "b")}, False),
    ],
)
def test_sets_are_the_same_whose_members_are(one: Any, other: Any, alike: bool) -> None:
    assert same(one, other) is alike


def test_paths_are_told_apart_by_where_they_lead() -> None:
    """Python 3.12 and later keep how they were written: of a Windows path by which slashes."""
    assert same(PureWindowsPath("a\\b"), PureWindowsPath("a/b"))
    assert not same(PureWindowsPath("a"), PurePosixPath("a"))
    assert not same(PurePosixPath("a/b"), PurePosixPath("a/c"))
