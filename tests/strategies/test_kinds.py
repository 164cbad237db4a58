"""`same` over all kinds that are ready-made: yes to each and its copy, no to each change it claims to see."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankdrill_strategies import everyday, explain_difference, same, specimens
from rankdrill_strategies.everyday import from_tables
from rankdrill_strategies.everyday.deep import DEEP

TABLES = [getattr(everyday, name) for name in everyday.__all__ if type(getattr(everyday, name)) is tuple] + [DEEP]
EVERY = [make for table in TABLES for make in table]


def test_everything_is_the_same_as_itself_as_a_copy_and_as_another_made_alike() -> None:
    for make in EVERY:
        one = make()
        assert explain_difference(one, one) is None
        assert explain_difference(one, pickle.loads(pickle.dumps(one, 5))) is None
        assert explain_difference(one, make()) is None


@settings(max_examples=400, deadline=None)
@given(from_tables(*TABLES), from_tables(*TABLES))
def test_it_says_of_any_two_what_it_says_of_them_the_other_way_round(one: Any, other: Any) -> None:
    assert same(one, other) == same(other, one)


@settings(max_examples=200, deadline=None)
@given(st.lists(from_tables(*TABLES), min_size=2, max_size=3))
def test_what_is_gone_or_moved_is_seen(parts: list[Any]) -> None:
    assert not same(parts, parts[1:])
    assert not same(parts, [*parts, None])
    assert same(parts, [parts[1], parts[0], *parts[2:]]) == same(parts[:2], parts[1::-1])


def _with(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(whole: Any) -> Any:
        change(whole)
        return whole

    return changed


def _coded(error: Exception) -> None:
    error.code = 2  # type: ignore[attr-defined]  # anybody may


# What `same` claims to see: a value, and what is done to a copy of it.
CLAIMS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "int becomes float": (1, float),
    "bool becomes int": (True, int),
    "int becomes bool": (1, bool),
    "a member of an enum becomes its value": (specimens.Level.HIGH, int),
    "text becomes bytes": ("a", str.encode),
    "bytes become a bytearray": (b"a", bytearray),
    "the sign of zero": (-0.0, abs),
    "NaN becomes a number": (float("nan"), lambda _: 0.0),
    "the last bit of a float": (0.1, lambda number: number + 2**-56),
    "text in another normal form": ("e\u0301", lambda _: "é"),
    "a zero byte less": (b"a\0", lambda octets: octets.rstrip(b"\0")),
    "tuple becomes list": ((1,), list),
    "named tuple becomes tuple": (specimens.Couple(1, 2), tuple),
    "set becomes frozenset": ({1}, frozenset),
    "subclass of dict becomes dict": (OrderedDict(a=1), dict),
    "subclass of list becomes list": (specimens.TaggedList([1]), list),
    "order of keys": ({"b": 0, "a": 1}, lambda keyed: dict(sorted(keyed.items()))),
    "type of a key": ({1: 0}, lambda keyed: {True: 0}),
    "a default factory": (defaultdict(list), lambda keyed: defaultdict(None, keyed)),
    "the bound of a deque": (deque([1], maxlen=2), deque),
    "an attribute more": (specimens.Outer.Inner(1), _with(lambda inner: setattr(inner, "more", 1))),
    "an attribute of an exception": (ValueError("a"), _with(_coded)),
    "a note": (ValueError("a"), _with(lambda error: error.add_note("b"))),
    "an exception in a group": (
        ExceptionGroup("a", [ValueError(1)]),
        lambda group: ExceptionGroup("a", [ValueError()]),
    ),
    "a file's name": (OSError(2, "a", "b"), lambda error: OSError(2, "a")),
    "a time zone": (datetime(2024, 1, 1, tzinfo=UTC), lambda time: time.replace(tzinfo=None)),
    "a microsecond": (timedelta(1), lambda time: time + timedelta(microseconds=1)),
    "dtype of a tensor": (torch.tensor([1.0]), torch.Tensor.double),
    "shape of a tensor": (torch.zeros(2), lambda tensor: tensor[None]),
    "a bit of a tensor": (torch.tensor([0.1]), lambda tensor: tensor.nextafter(torch.ones(1))),
    "elements of a tensor in another order": (torch.arange(6).reshape(2, 3).t(), lambda t: t.reshape(-1).sort()[0]),
    "requires_grad": (torch.zeros(1), torch.Tensor.requires_grad_),
    "parameter becomes tensor": (torch.nn.Parameter(torch.zeros(1), requires_grad=False), torch.Tensor.detach),
    "sparse becomes dense": (torch.eye(2).to_sparse(), torch.Tensor.to_dense),
    "a generator that was used": (
        torch.Generator().manual_seed(1),
        _with(lambda generator: torch.rand(1, generator=generator)),
    ),
    "dtype of an array": (numpy.array([1.0]), lambda array: array.astype("f4")),
    "shape of an array": (numpy.zeros(2), lambda array: array[None]),
    "an array of no dimensions becomes a number": (numpy.array(1.0), float),
    "a numpy scalar becomes a number": (numpy.float64(1), float),
    "a mask": (numpy.ma.array([1], mask=[True]), numpy.ma.getdata),
    "a record": (numpy.rec.array([(1,)], dtype=[("a", "i4")]), lambda array: array.view(numpy.ndarray)),
    "one object becomes two": ([[1]] * 2, lambda pair: [pair[0], copy.copy(pair[0])]),
    "two objects become one": ([[1], [1]], lambda pair: [pair[0]] * 2),
    "a list becomes a knot": ([[]], _with(lambda whole: whole[0].append(whole))),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_it_claims_to_see_it_sees(claim: str) -> None:
    value, change = CLAIMS[claim]
    changed = change(pickle.loads(pickle.dumps(value, 5)))
    assert same(value, pickle.loads(pickle.dumps(value, 5)))
    assert not same(value, changed)
    assert not same([value], [changed])
    assert not same(changed, value)
