"""Other orders of messages, and what counts as the same: as values, without ranks."""

from __future__ import annotations

import pickle
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.boundary.orders.alike import alike
from rankdrill.boundary.orders.kept import Kept, told_apart
from rankdrill.boundary.orders.script import MOST_ORDERS, Came, Made, Script, exchanged
from rankdrill.step import Message

NAN = float("nan")


def came(source: int, number: int, tag: int = 0, *, named: bool = False) -> Came:
    return Came("default", source, Message(source, tag, number), (torch.zeros(1),), None, named)


def script(*parts: list[Came]) -> Script:
    found = Script()
    for place, part in enumerate(parts):
        for message in part:
            found.came(message)
        if place + 1 < len(parts):
            found.called(Made("barrier", "barrier #0", (), ()))
    return found


def numbered(sources: list[int], tag: int = 0) -> list[Came]:
    seen: Counter[int] = Counter()
    made = []
    for source in sources:
        made.append(came(source, seen[source], tag))
        seen[source] += 1
    return made


def orders(of: Script) -> list[list[list[tuple[int, int]]]]:
    return [[[one.which for one in part] for part in other.parts] for other in of.otherwise()]


def test_two_messages_have_one_other_order() -> None:
    assert orders(script(numbered([1, 2]))) == [[[(2, 0), (1, 0)]]]


def test_one_sender_has_no_other_order() -> None:
    of = script(numbered([3, 3, 3]))
    assert (orders(of), of.contested) == ([], {})


def test_what_lies_between_two_collectives_stays_there() -> None:
    for parts in orders(script(numbered([1, 2]), numbered([2, 1]))):
        assert [sorted(part) for part in parts] == [[(1, 0), (2, 0)]] * 2


def test_a_message_whose_sender_was_named_stays_where_it_is() -> None:
    part = [came(1, 0), came(1, 1, named=True), came(2, 0), came(2, 1, named=True)]
    for other in script(part).otherwise():
        assert [one.which for one in other.parts[0]] == [(2, 0), (1, 1), (1, 0), (2, 1)]
        assert exchanged(script(part), script(part)) == ()
        assert exchanged(Script([part]), other) == (((1, 0), (2, 0)),)


@given(st.lists(st.integers(1, 4), max_size=8), st.lists(st.integers(0, 1), min_size=8, max_size=8))
def test_every_order_keeps_senders_and_streams(sources: list[int], tags: list[int]) -> None:
    part = [came(source, place, tag) for place, (source, tag) in enumerate(zip(sources, tags, strict=False))]
    of = Script([part])
    found = [other.parts[0] for other in of.otherwise()]
    assert len(found) <= MOST_ORDERS
    assert bool(found) == bool(of.contested)
    for other in found:
        assert Counter(map(id, other)) == Counter(map(id, part))
        assert [one.stream for one in other] == [one.stream for one in part]
        for source, tag in {(one.source, one.message.tag) for one in part}:
            own = [one.message.number for one in other if (one.source, one.message.tag) == (source, tag)]
            assert own == sorted(own)
        assert [id(one) for one in other] != [id(one) for one in part]
        assert exchanged(of, Script([other]))


ALIKE: list[tuple[Any, Any]] = [
    (1.0, 1.0 + 1e-7),
    (NAN, NAN),
    ([1, (2.0, "a")], [1, (2.0 + 1e-8, "a")]),
    ({"a": 1.0, "b": 2}, {"b": 2, "a": 1.0}),
    ({1, 2}, {2, 1}),
    (torch.tensor([1.0, NAN]), torch.tensor([1.0 + 1e-7, NAN])),
    (torch.tensor([1 + 1e-7j]), torch.tensor([1 + 0j])),
    (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-8])),
    (np.float32(0.1), np.float32(0.1)),
    (SimpleNamespace(loss=0.5), SimpleNamespace(loss=0.5 + 1e-9)),
    (object(), object()),
    (None, None),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1.0, 1.01),
    (1, 2),
    ("a", "b"),
    ([1, 2], [2, 1]),
    ([1], [1, 1]),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, {"b": 1}),
    (torch.tensor([1.0]), torch.tensor([2.0])),
    (torch.tensor([1]), torch.tensor([1.0])),
    (torch.zeros(2), torch.zeros(3)),
    (np.array([1, 2]), np.array([2, 1])),
    (SimpleNamespace(loss=0.5), SimpleNamespace(loss=0.6)),
    (None, 0),
    (b"x", "x"),
    (True, False),
]


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=range(len(ALIKE)))
def test_alike(one: Any, other: Any) -> None:
    assert alike(one, other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_different(one: Any, other: Any) -> None:
    assert not alike(one, other)


def kept(text: str, *objects: Any) -> Kept:
    return Kept("/somewhere/kept", text.encode(), tuple(map(pickle.dumps, objects)))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("loss 0.30000000000000004", "loss 0.3"),
        ("one\ntwo\n", "two\none\n"),
        ('{"a": 1, "b": [2]}', '{"b": [2], "a": 1.0000001}'),
    ],
)
def test_text_that_says_the_same(was: str, now: str) -> None:
    assert not told_apart(kept(was), kept(now))


@pytest.mark.parametrize(("was", "now"), [("loss 0.3", "loss 0.4"), ("[1, 2]", "[2, 1]"), ("one\n", "one\ntwo\n")])
def test_text_that_says_something_else(was: str, now: str) -> None:
    assert told_apart(kept(was), kept(now))


def test_of_what_was_pickled_the_objects_count() -> None:
    assert not told_apart(kept("bytes", {"a": 0.3}), kept("others", {"a": 0.1 + 0.2}))
    assert told_apart(kept("bytes", [1, 2]), kept("others", [2, 1]))
    assert not told_apart(kept("bytes", [1, 2]), kept("others", [2, 1], "one more"))


def test_of_other_bytes_nothing_is_said() -> None:
    assert not told_apart(Kept("/k", b"\xff\x00"), Kept("/k", b"\xff\x01"))
