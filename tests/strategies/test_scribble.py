"""`scribble` changes everything that can change, and nothing else."""

from __future__ import annotations

import array
import fractions
import functools
import math
import pathlib
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings

from rankdrill_strategies import arrays, explain_difference, picklables, same, scribble, specimens, tensors

CHANGED: dict[str, Callable[[], Any]] = {
    "list": list,
    "dict": dict,
    "set": set,
    "deque": deque,
    "bounded deque": lambda: deque([1, 2], maxlen=2),
    "bytearray": lambda: bytearray(b"a"),
    "array.array": lambda: array.array("d", [1.0]),
    "OrderedDict": OrderedDict,
    "defaultdict": lambda: defaultdict(list),
    "Counter": Counter,
    "dataclass": specimens.Record,
    "slots": lambda: specimens.Slotted(1),
    "both": specimens.HalfSlotted,
    "__reduce__": specimens.Reduced,
    "__getstate__": specimens.Stateful,
    "__getnewargs_ex__": specimens.NewArguments,
    "exception": specimens.RefusalError,
    "namespace": lambda: SimpleNamespace(a=1),
    "ndarray": lambda: numpy.zeros(2),
    "NaN in an array": lambda: numpy.array([math.nan]),
    "object array": lambda: numpy.array([None]),
    "tensor": lambda: torch.zeros(2),
    "NaN in a tensor": lambda: torch.tensor([math.nan]),
    "parameter": lambda: torch.nn.Parameter(torch.zeros(2)),
    "expanded tensor": lambda: torch.zeros(1).expand(3),
    "sparse tensor": lambda: torch.eye(2).to_sparse(),
    "conjugate": lambda: torch.tensor([1j]).conj(),
    "a list twice": lambda: [[]] * 2,
}


@pytest.mark.parametrize("make", CHANGED.values(), ids=CHANGED)
def test_what_can_change_is_changed_and_counted(make: Callable[[], Any]) -> None:
    changed = make()
    assert scribble(changed) >= 1
    assert not same(make(), changed)


@pytest.mark.parametrize("make", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize(
    "around",
    [
        lambda part: (part,),
        lambda part: specimens.Frozen(part),
        lambda part: specimens.FrozenSlotted(y=part),
        lambda part: functools.partial(specimens.twice, part),
        lambda part: ValueError(part),
        lambda part: specimens.Couple(0, part),
    ],
    ids=["tuple", "frozen", "frozen slots", "partial", "exception", "named tuple"],
)
def test_it_reaches_what_unchangeable_things_hold(make: Callable[[], Any], around: Callable[[Any], Any]) -> None:
    held = make()
    scribble(around(held))
    assert not same(make(), held)


@pytest.mark.parametrize(
    "fixed",
    [
        *(None, 1, "a", b"a", 1.5, (1, (2,)), frozenset({1}), range(3), len, specimens.Record, specimens.Colour.RED),
        *(specimens.Frozen(1, (2,)), specimens.twice, list[int], numpy.float64(1), deque([1], maxlen=0), bytearray()),
        *(numpy.zeros(0), torch.zeros(0), object(), pathlib.PurePosixPath("a/b"), fractions.Fraction(1, 3)),
    ],
    ids=lambda fixed: type(fixed).__name__,  # no addresses: they differ between xdist's workers
)
def test_what_cannot_change_stays(fixed: Any) -> None:
    before = pickle.dumps(fixed, 5)
    assert scribble(fixed) == 0
    assert pickle.dumps(fixed, 5) == before


def test_each_object_is_changed_once() -> None:
    shared: list[Any] = []
    assert scribble([shared, {"x": shared}]) == 3
    assert len(shared) == 1


def test_a_read_only_array_is_left_and_not_counted() -> None:
    read_only = numpy.zeros(2)
    read_only.flags.writeable = False
    assert scribble([read_only]) == 1
    assert same(read_only, numpy.zeros(2))


def test_every_element_is_changed() -> None:
    tensor, elements = torch.arange(6).reshape(2, 3).t(), numpy.arange(6.0)[::-2]
    before = tensor.clone(), elements.copy()
    scribble([tensor, elements])
    assert (tensor != before[0]).all()
    assert (elements != before[1]).all()


def test_twice_does_not_undo_what_objects_hold() -> None:
    record = specimens.Stateful([1])
    scribble(record)
    once = pickle.loads(pickle.dumps(record))
    scribble(record)
    assert not same(once, record)


@settings(max_examples=200, deadline=None)
@given(tensors(newer_dtypes=True))
def test_every_tensor_with_elements_is_changed(tensor: torch.Tensor) -> None:
    before = tensor.detach().clone()
    elements = tensor._values().numel() if tensor.is_sparse else tensor.numel()
    assert scribble(tensor) == (elements > 0)
    assert same(tensor.detach(), before) == (elements == 0)


@settings(max_examples=200, deadline=None)
@given(arrays())
def test_a_copy_of_an_array_is_changed_and_the_array_is_not(found: Any) -> None:
    copied, before = pickle.loads(pickle.dumps([found, found], 5)), pickle.loads(pickle.dumps([found, found], 5))
    assert explain_difference(copied, before) is None
    scribble(copied)
    assert explain_difference([found, found], before) is None


@settings(max_examples=200, deadline=None)
@given(picklables())
def test_it_is_seen_exactly_when_something_was_changed(payload: Any) -> None:
    before = pickle.loads(pickle.dumps(payload, 5))
    changed = scribble(payload)
    assert same(before, payload) == (changed == 0)
