"""A wrong result is told by what it would have been right for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch

from rankdrill.conformance import Adapter
from rankdrill.conformance.gives import GIVES
from rankdrill.conformance.kit.complaints.changes import how_alike
from rankdrill.conformance.kit.complaints.guesses import Asked, Guess, likeness, with_best

ENTRIES = [{"rank": rank, "words": ["a", "bc"][: rank + 1]} for rank in range(3)]
BEFORE = [{"rank": rank, "words": []} for rank in range(3)]
LISTS = [[1], [2, 3, 4], [None, 5]]
ROWS = [torch.arange(2.0 * (rank + 1)).reshape(-1, 2) + 10 * rank for rank in range(3)]
PAIRS = [torch.tensor([1.0, 2.0 + rank]) for rank in range(2)]
WITH_NONE = [ENTRIES[0], None, ENTRIES[2]]
WITH_EMPTY = [[1], [], [3]]
NUMBERS = [torch.tensor([2.0, 4.0]), torch.tensor([6.0, 10.0])]


def _guesses(got: Any, payloads: Sequence[Any], gives: str = "list", own: int = 1) -> tuple[Guess, ...]:
    adapter = Adapter("mine", lambda payload, setting: payload, GIVES[gives])
    return likeness(got, Asked(adapter, own, payloads, 1, {0: BEFORE}))


@pytest.mark.parametrize(
    ("gives", "payloads", "got", "told"),
    [
        ("list", [{"a": 1}, {"a": 1, "b": 2}], [{"a": 1}, {"a": 1}], "what every entry with rank 0's keys alone would"),
        ("list", ENTRIES, ENTRIES[::-1], "what the entries in reversed order would give"),
        ("list", ENTRIES, [ENTRIES[1], ENTRIES[2], ENTRIES[0]], "what the entries of ranks 1, 2, 0, in that order,"),
        ("list", ENTRIES, [ENTRIES[1], ENTRIES[0], ENTRIES[2]], "what its own entry first, then the others' would"),
        ("list", ENTRIES, [ENTRIES[2]], "what rank 2's entry alone would give"),
        ("list", ENTRIES, [ENTRIES[0]] * 3, "what rank 0's entry in every place would give"),
        ("list", ENTRIES, [ENTRIES[1]] * 3, "what its own entry in every place would give"),
        ("list", ENTRIES, ENTRIES[:2], "what all entries but rank 2's would give"),
        ("list", ENTRIES, [ENTRIES[0], ENTRIES[0], ENTRIES[2]], "what rank 0's entry in the place of rank 1's"),
        ("list", ENTRIES, [ENTRIES[0], None, ENTRIES[2]], "what None in place of its own entry would give"),
        ("list", ENTRIES, ENTRIES[1], "its own payload and nothing else"),
        ("list", ENTRIES, BEFORE, "what the entries of call 1, the one before, would give"),
        ("list", ENTRIES, [BEFORE[0], *ENTRIES[1:]], "what rank 0's entry of call 1, the one before, among the right"),
        ("list", ENTRIES, tuple(ENTRIES), "right, but tuple for list"),
        ("list", ENTRIES, tuple(ENTRIES[::-1]), "what the entries in reversed order would give, and tuple for list"),
        ("list", ENTRIES, dict(enumerate(ENTRIES)), "a dict of all entries by rank"),
        ("list", WITH_NONE, [ENTRIES[0], ENTRIES[2]], "what the entries without those that are None would give"),
        ("list", WITH_EMPTY, [[1], [3]], "what the entries without those that are empty would give"),
        ("list", [0, [], 3], [None, None, 3], "what None for each entry that is empty or zero would give"),
        ("list", LISTS, [[1], [2], [None]], "what every entry cut to the shortest would give"),
        ("list", LISTS, [[1, None, None], LISTS[1], [None, 5, None]], "what every entry padded to the longest would"),
        ("list", LISTS, [[1], [2, 3, 4], [5]], "what every entry without items that are None would give"),
        ("list", [b"a", b"bcd"], [b"a??", b"bcd"], "every entry with something behind it, up to the longest"),
        ("list", ROWS, [each.numpy() for each in ROWS], "right, but an array of float32 for a tensor of float32"),
        ("list", ROWS, [each[:1] for each in ROWS], "what every entry cut to the shortest would give"),
        ("list", PAIRS, torch.stack(PAIRS), "right, but a tensor of float32 for list"),
        ("list", LISTS, [1, 2, 3, 4, None, 5], "all ranks' items in one"),
        ("concatenated", LISTS, LISTS, "a list of all entries"),
        ("concatenated", LISTS, [1, 2, None, 3, 5, 4], "all ranks' items in turns"),
        ("concatenated", PAIRS, torch.tensor([1.0, 1, 2, 3]), "all ranks' items in turns"),
        ("concatenated", [PAIRS[0][None], PAIRS[1][None]], torch.cat(PAIRS)[None], "all entries side by side, joined"),
        ("sum", NUMBERS, torch.tensor([4.0, 7.0]), "the mean"),
        ("sum", [{"a": 1, "b": 5}, {"b": 9, "a": 7}], {"b": 10, "a": 12}, "what all values by place, under its own"),
        ("sum", NUMBERS, NUMBERS[1], "what its own entry alone would give"),
        ("sum", NUMBERS, torch.tensor([16.0, 28.0]), "what every entry twice over would give"),
        ("mean", NUMBERS, torch.tensor([8.0, 14.0]), "the sum"),
        ("mean", NUMBERS, torch.tensor([2.0, 3.5]), "the right one divided by 2"),
    ],
)
def test_the_mistake_is_told_by_what_came(gives: str, payloads: list[Any], got: Any, told: str) -> None:
    guesses = _guesses(got, payloads, gives)
    assert with_best("wrong", [guesses]).startswith(f"wrong; this is {told}")


@pytest.mark.parametrize(
    ("got", "wanted", "told"),
    [
        ("na?ve", "naïve", "the text without what ascii does not have"),
        ("日".encode().decode("latin-1"), "日", "its UTF-8 read as latin-1"),
        (b"ab", b"abcd", "the first 2 of 4, and the rest is cut off"),
        (b"ends", b"ends\0\0", "the first 4 of 6, and the rest is cut off"),
        (b"begins", b"\0begins", "right, but without the zeros or blanks at its ends"),
        ([1, 2, 3, 0], [1, 2, 3], "right, with 1 more behind it"),
        ([1, "", 2], [1, 2], "right, with ''"),
        ([1, 3], [1, 2, 3], "right, but without 2"),
        (list(range(9)), [0, 8], "right, with 1, 2, 3, …"),
        ([1, 3, 9], [1, 2], ""),
        ({"1": "a"}, {1: "a"}, "right, but with keys that have become text"),
        (OrderedDict(a=1, z=2), OrderedDict(z=2, a=1), "right, but with its keys sorted"),
        (OrderedDict(a=2, z=1), OrderedDict(z=2, a=1), ""),
        ({"b": 1}, {"a": 1}, "the right values under other keys"),
        (float(numpy.float32(0.1)), 0.1, "what a float of 32 bits can hold of it"),
        (float(2**63 - 1), 2**63 - 1, "what a float can hold of it"),
        (2**40 % 2**32, 2**40, "what is left of it in fewer bits"),
        (torch.ones(6), torch.ones(2, 3), "right, but of shape (6,), not (2, 3)"),
        (torch.arange(6).reshape(2, 3).t(), torch.arange(6).reshape(2, 3), "right, but transposed"),
        (torch.tensor([1, 2]), torch.tensor([2, 1]), "the right numbers in another order"),
        (torch.tensor([0, 1]), torch.tensor([0.5, 1.5]), "what a tensor of int64 can hold of it"),
        (torch.zeros(2), torch.tensor([1.0, 2.0]), "nothing but zeros"),
        (torch.ones(2), torch.ones(2, requires_grad=True), "right, but one without a gradient for one with"),
        ({"in": [(1, "a")]}, {"in": [(1, "b")]}, ""),
        (None, {"a": 1}, ""),
    ],
)
def test_so_is_what_became_of_one_part_of_it(got: Any, wanted: Any, told: str) -> None:
    around: Callable[[Any], Any] = lambda value: [{"it": (1, value)}]  # noqa: E731
    assert how_alike(around(got), around(wanted)) == told


def test_so_is_what_another_group_has_sent() -> None:
    adapter = Adapter("mine", lambda payload, setting: payload)
    asked = Asked(adapter, 0, ENTRIES, 0, {}, [("ranks 3 and 4", BEFORE)])
    for got, told in (
        (BEFORE, "what the entries of ranks 3 and 4 would give"),
        ([*ENTRIES, *BEFORE], "what the entries of ranks 3 and 4 behind the right ones would give"),
        ([ENTRIES[0], BEFORE[1], ENTRIES[2]], "what an entry of ranks 3 and 4 in place of rank 1's would give"),
    ):
        assert likeness(got, asked)[0].text == told


def test_where_all_of_it_may_be_meant_a_part_is_not_told() -> None:
    assert _guesses("nothing that anybody sent", ENTRIES) == ()


def test_of_a_rank_that_is_to_receive_nothing_nothing_is_told() -> None:
    assert _guesses(ENTRIES, ENTRIES, "dst", own=1) == ()


def test_what_cannot_be_compared_is_not_told_and_does_no_harm() -> None:
    class Awkward:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("compare me not")

        __hash__ = None  # type: ignore[assignment]

    assert _guesses(Awkward(), ENTRIES) == ()


def test_what_fits_every_wrong_rank_is_told() -> None:
    first = _guesses(ENTRIES[:1], ENTRIES, own=0)
    second = _guesses(ENTRIES[:1], ENTRIES, own=1)
    assert with_best("", [first, second]) == "; this is what rank 0's entry alone would give"
    each = _guesses(ENTRIES[1:2], ENTRIES, own=1)
    assert with_best("", [first, each]) == "; this is what its own entry alone would give"


def test_where_a_rank_is_right_it_is_nothing_that_all_ranks_have_alike() -> None:
    two = ENTRIES[:2]
    guesses = _guesses(two[::-1], two, own=1)
    assert with_best("", [guesses]) == "; this is what the entries in reversed order would give"
    own = with_best("", [guesses], some_right=True)
    assert own == "; this is what its own entry first, then the others' would give"
