"""Every kind of payload is really drawn, survives pickle, and shrinks to something small."""

from __future__ import annotations

import array
import datetime
import functools
import gc
import io
import math
import pathlib
import pickle
import re
import subprocess
import sys
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import cloudpickle
import numpy
import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from rankdrill.errors import UsageError
from rankdrill_strategies import explain_difference, picklables, same, specimens
from tests.covering import thinned

_OPAQUE = (type, types.FunctionType, types.ModuleType, types.BuiltinFunctionType, types.MethodType)
CENSUS = 8000  # examples: in as many, the rarest kind is met a few times, whatever the versions of hypothesis and torch


def _inside(obj: Any) -> Iterator[Any]:
    """Everything reachable from `obj`, by the garbage collector's word rather than by ours."""
    seen, pending = set(), [obj]
    while pending:
        here = pending.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        if not isinstance(here, _OPAQUE):
            pending.extend(gc.get_referents(here))


@pytest.fixture(scope="module")
def census() -> set[str]:
    """The names of all kinds seen in many examples, the same ones for as long as the code is the same."""
    seen: set[str] = set()

    class Whole(Exception):  # noqa: N818 - no error: nothing is left to be seen
        pass

    exact = {kind: kind.__qualname__ for kind in _CLASSES}  # asked of every part: one look-up for all of them
    missing = dict(_OTHERS)

    @settings(
        max_examples=CENSUS,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(picklables())
    def draw(payload: Any) -> None:
        for part in _inside(payload):
            if name := exact.pop(type(part), None):
                seen.add(name)
            for name in [name for name, is_one in missing.items() if is_one(part)]:
                seen.add(name)
                del missing[name]
        if not missing and not exact:
            raise Whole

    with suppress(Whole):
        draw()
    return seen


def _is(value: Any) -> Callable[[Any], bool]:
    return lambda obj: obj is value


def _is_float(test: Callable[[float], bool]) -> Callable[[Any], bool]:
    return lambda obj: type(obj) is float and test(obj)


def _among(obj: Any, parts: Iterable[Any]) -> bool:
    return any(part is obj for part in parts)


_CLASSES = (
    *(list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict, Counter, int, str, bytes, bytearray),
    *(complex, Fraction, range, slice, array.array, functools.partial, uuid.UUID, re.Pattern, pathlib.PurePosixPath),
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone, types.SimpleNamespace),
    *(torch.Tensor, torch.nn.Parameter, numpy.ndarray, specimens.Couple, specimens.Record, specimens.Slotted),
    *(specimens.Frozen, specimens.FrozenSlotted, specimens.HalfSlotted, specimens.Reduced, specimens.Stateful),
    *(specimens.NewArguments, specimens.RefusalError, specimens.Prickly, specimens.TaggedList, specimens.TaggedDict),
    *(specimens.TaggedInt, specimens.Node, specimens.Outer.Inner, specimens.Colour, specimens.Level),
    *(specimens.Mode, specimens.Rights, object),
)
_OTHERS: dict[str, Callable[[Any], bool]] = {
    "None": _is(None),
    "Ellipsis": _is(Ellipsis),
    "NotImplemented": _is(NotImplemented),
    "True": _is(True),
    "a class": _is(specimens.Record),
    "a nested class": _is(specimens.Outer.Inner),
    "a function": _is(specimens.twice),
    "a builtin": _is(len),
    "a class method": lambda obj: isinstance(obj, types.MethodType) and obj.__func__.__name__ == "make",
    "a singleton": _is(specimens.NOTHING),
    "a generic alias": lambda obj: isinstance(obj, types.GenericAlias),
    "NaN": _is_float(math.isnan),
    "infinity": _is_float(lambda number: number == math.inf),
    "negative infinity": _is_float(lambda number: number == -math.inf),
    "-0.0": _is_float(lambda number: number == 0 and math.copysign(1, number) < 0),
    "a big int": lambda obj: type(obj) is int and obj.bit_length() > 2030 and obj > 0,
    "a big negative int": lambda obj: type(obj) is int and obj.bit_length() > 2030 and obj < 0,
    "an int of more than 64 bits": lambda obj: type(obj) is int and obj.bit_length() > 64,
    "NaN, decimal": lambda obj: type(obj) is Decimal and obj.is_qnan(),
    "signalling NaN, decimal": lambda obj: type(obj) is Decimal and obj.is_snan(),
    "a lone surrogate": lambda obj: type(obj) is str and any("\ud800" <= char <= "\udfff" for char in obj),
    "a time zone": lambda obj: isinstance(obj, datetime.datetime) and obj.tzinfo is not None,
    "a NaN key": lambda obj: type(obj) is dict and any(key != key for key in obj if type(key) is float),
    "a tuple in a set": lambda obj: type(obj) is set and any(type(member) is tuple for member in obj),
    "a bounded deque": lambda obj: type(obj) is deque and obj.maxlen == 3,
    "an unset slot": lambda obj: type(obj) is specimens.HalfSlotted and not hasattr(obj, "slot"),
    "a numpy scalar": lambda obj: isinstance(obj, numpy.generic),
    "one list twice": lambda obj: type(obj) is list and len(obj) == 2 and obj[0] is obj[1] and type(obj[0]) is list,
    "one tensor twice": lambda obj: (
        type(obj) is list and len(obj) == 2 and obj[0] is obj[1] and type(obj[0]) is torch.Tensor
    ),
    "one object at two depths": lambda obj: (
        type(obj) is tuple and len(obj) == 2 and type(obj[1]) is list and _among(obj[0], obj[1])
    ),
    "a list in itself": lambda obj: type(obj) is list and _among(obj, obj),
    "a list in itself through a tuple": lambda obj: (
        type(obj) is list and any(type(part) is tuple and _among(obj, part) for part in obj)
    ),
    "a dict in itself": lambda obj: type(obj) is dict and _among(obj, obj.values()),
    "a deque in itself": lambda obj: type(obj) is deque and _among(obj, obj),
    "a slotted object in itself": lambda obj: type(obj) is specimens.Slotted and obj.second is obj,
    "an object with state in itself": lambda obj: (
        type(obj) is specimens.Stateful and type(obj.payload) is list and _among(obj, obj.payload)
    ),
    "an object in a set of its own": lambda obj: type(obj) is specimens.Node and obj in obj.friends,
    "an object in a frozenset of its own": lambda obj: type(obj) is specimens.Node and obj in obj.team,
    "a ring of objects": lambda obj: type(obj) is specimens.Node and repr(obj.label) == "'first'",
    "an ordered dict around a default dict": lambda obj: (
        type(obj) is OrderedDict and type(obj.get("back")) is defaultdict and obj["back"]["self"] is obj
    ),
}


KINDS = [*(kind.__qualname__ for kind in _CLASSES), *_OTHERS]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn(kind: str, census: set[str]) -> None:
    assert kind in census


# ---------------------------------------------------------------------------------------------- pickling


@settings(max_examples=150, deadline=None)
@given(picklables())
def test_pickle_keeps_everything(payload: Any) -> None:
    assert explain_difference(payload, pickle.loads(pickle.dumps(payload, 5))) is None


@settings(max_examples=150, deadline=None)
@given(picklables())
def test_cloudpickle_keeps_everything(payload: Any) -> None:
    assert explain_difference(payload, cloudpickle.loads(cloudpickle.dumps(payload))) is None


@settings(max_examples=150, deadline=None)
@given(picklables(newer_dtypes=True))
def test_torch_save_keeps_the_newer_dtypes_too(payload: Any) -> None:
    file = io.BytesIO()
    torch.save(payload, file, pickle_protocol=5)
    file.seek(0)
    assert explain_difference(payload, torch.load(file, weights_only=False)) is None


_ECHO = """
import pickle, sys
payloads = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(payloads, 5))
"""


@pytest.mark.parametrize("examples", [60, pytest.param(1000, marks=pytest.mark.nightly)])
def test_another_process_can_unpickle_them(examples: int) -> None:
    payloads: list[Any] = []
    some = settings(max_examples=examples, database=None, deadline=None, phases=[Phase.generate])
    some(given(picklables())(lambda payload: payloads.append(payload)))()
    echo = subprocess.run([sys.executable, "-c", _ECHO], input=pickle.dumps(payloads, 5), capture_output=True)
    assert echo.returncode == 0, echo.stderr.decode()
    assert explain_difference(payloads, pickle.loads(echo.stdout)) is None


# ---------------------------------------------------------------------------------------------- shrinking


def _smallest(test: Callable[[Any], bool], strategy: st.SearchStrategy[Any] | None = None) -> Any:
    quickly = settings(max_examples=5000, database=None, deadline=None, derandomize=True)
    return find(picklables() if strategy is None else strategy, test, settings=quickly)


def test_the_smallest_payload_is_none() -> None:
    assert _smallest(lambda payload: True) is None


def test_a_list_shrinks_to_an_empty_list() -> None:
    assert _smallest(lambda payload: type(payload) is list) == []


def test_a_shared_list_shrinks_to_a_small_one() -> None:
    smallest = _smallest(
        lambda payload: (
            type(payload) is list
            and len(payload) == 2
            and payload[0] is payload[1] is not None
            and type(payload[0]) is list
        )
    )
    assert len(smallest[0]) <= 1
    assert same(smallest, [smallest[0], smallest[0]])


@pytest.mark.nightly
def test_a_recursive_list_shrinks_to_itself_around_none() -> None:
    smallest = _smallest(lambda payload: type(payload) is list and _among(payload, payload))
    knot = [None]
    knot.append(knot)  # type: ignore[arg-type]  # that is what a recursive list is
    assert same(smallest, knot)


def test_a_tensor_shrinks_to_zero() -> None:
    smallest = _smallest(lambda payload: isinstance(payload, torch.Tensor))
    assert same(smallest, torch.zeros(()))


def test_nan_among_other_things_shrinks_to_little_else() -> None:
    unshared = picklables(sharing=False, recursive=False, arrays=False, tensors=False)
    smallest = _smallest(lambda payload: type(payload) is list and any(map(_OTHERS["NaN"], _inside(payload))), unshared)
    # Not always [nan]: what Hypothesis tries first depends on constants it finds in the code around.
    assert sum(1 for _ in _inside(smallest)) <= 4, smallest


# ---------------------------------------------------------------------------------------------- knobs


def _parts_of(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool] | None = None) -> list[Any]:
    found: list[Any] = []
    some = settings(max_examples=300, database=None, deadline=None, derandomize=True, phases=[Phase.generate])
    some(given(strategy)(lambda payload: found.extend(filter(wanted or (lambda _: True), _inside(payload)))))()
    return found


@pytest.fixture(scope="module")
def with_all_on() -> list[Any]:
    """What is drawn with every knob as it is."""
    return _parts_of(picklables())


_OFF: list[tuple[str, Callable[[Any], bool]]] = [
    ("tensors", lambda obj: isinstance(obj, torch.Tensor)),
    ("arrays", lambda obj: isinstance(obj, (numpy.ndarray, numpy.generic))),
    ("recursive", lambda obj: type(obj) in (list, dict, deque) and _among(obj, gc.get_referents(obj))),
    ("sharing", lambda obj: type(obj) is deque and len(obj) == 3 and obj[0] is obj[2] and type(obj[0]) is list),
]


@pytest.mark.parametrize(("knob", "test"), thinned(_OFF, 2), ids=[knob for knob, _ in _OFF])
def test_a_knob_turned_off_leaves_its_kind_out(knob: str, test: Callable[[Any], bool], with_all_on: list[Any]) -> None:
    off: dict[str, Any] = {knob: False}
    assert not _parts_of(picklables(**off), test)
    assert knob == "sharing" or any(map(test, with_all_on))


@pytest.mark.nightly
def test_big_ones_are_drawn_when_asked_for() -> None:
    sizes: list[int] = []
    some = settings(max_examples=1000, database=None, deadline=None, derandomize=True, phases=[Phase.generate])
    some(given(picklables(big=True))(lambda payload: sizes.append(len(pickle.dumps(payload, 5)))))()
    assert sorted(sizes)[-10] >= 1 << 16
    assert max(sizes) > 1 << 18


def test_everything_of_every_day_is_drawn_within_few_examples() -> None:
    seen: set[str] = set()
    some = settings(max_examples=60, database=None, deadline=None, derandomize=True, phases=[Phase.generate])

    @some
    @given(picklables())
    def draw(payload: Any) -> None:
        parts = list(_inside(payload))
        seen.update(name for name, is_one in SOON.items() if any(map(is_one, parts)))

    draw()
    assert len(SOON) - len(seen) <= 2, SOON.keys() - seen


SOON: dict[str, Callable[[Any], bool]] = {
    "text beyond latin-1": lambda obj: type(obj) is str and any(char > "\xff" for char in obj),
    "a tuple": lambda obj: type(obj) is tuple and bool(obj),
    "an empty list": lambda obj: type(obj) is list and not obj,
    "empty bytes": lambda obj: type(obj) is bytes and not obj,
    "bytes over 255": lambda obj: type(obj) is bytes and len(obj) > 255,
    "text over 255": lambda obj: type(obj) is str and len(obj) > 255,
    "a float beyond 32 bits": _is_float(lambda number: number == 0.1),
    "an int beyond 64 bits": lambda obj: type(obj) is int and obj.bit_length() > 63,
    "keys in no order": lambda obj: type(obj) is dict and list(obj)[:2] == ["b", "a"],
    "keys that are no text": lambda obj: type(obj) is dict and any(type(key) is int for key in obj),
    "a view with an offset": lambda obj: (
        type(obj) is torch.Tensor and obj.layout is torch.strided and obj.storage_offset() > 0
    ),
    "a tensor that is not contiguous": lambda obj: (
        type(obj) is torch.Tensor and obj.layout is torch.strided and not obj.is_contiguous()
    ),
    "an exception": lambda obj: isinstance(obj, Exception),
    "a set": lambda obj: type(obj) is set and bool(obj),
    "NaN": _is_float(math.isnan),
    "a bool": lambda obj: obj is True,
}


@pytest.mark.parametrize("examples", [300, pytest.param(2000, marks=pytest.mark.nightly)])
def test_max_leaves_bounds_the_size(examples: int) -> None:
    sizes: set[int] = set()

    def measure(payload: Any) -> None:
        # Not of any list: those that are ready-made may be longer, and have three types of items at most.
        if type(payload) is list and len({*map(type, payload)}) > 3:
            sizes.add(len(payload))

    some = settings(max_examples=examples, database=None, deadline=None, derandomize=True, phases=[Phase.generate])
    some(given(picklables(max_leaves=5, recursive=False, sharing=False))(measure))()
    assert sizes == {4, 5}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"max_leaves": 0}, "max_leaves=0 is out of range; give at least 1"),
        ({"max_leaves": 2.5}, "max_leaves=2.5 is no count; give an int of at least 1"),
        ({"max_leaves": True}, "max_leaves=True is no count"),
        ({"tensors": 1}, "tensors=1 is no switch; give True or False"),
        ({"arrays": None}, "arrays=None is no switch"),
        ({"recursive": "no"}, "recursive='no' is no switch"),
        ({"sharing": 0}, "sharing=0 is no switch"),
        ({"big": 1 << 20}, "big=1048576 is no switch"),
        ({"newer_dtypes": []}, r"newer_dtypes=\[\] is no switch"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        picklables(**arguments)


def test_knobs_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        picklables(3)  # type: ignore[call-arg]  # that is the point
