"""The members of a group as text, whole or in parts, and read from it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.ledger import members_of, spell_members
from rankdrill.ledger.format import FINGERPRINT_BYTES
from rankdrill.ledger.members import ranks_in, told_in

MOST = 1024  # ranks of a world


def read(texts: Sequence[str]) -> tuple[int, ...]:
    """What all parts tell together, each of which says which it is."""
    told = [found for found in map(told_in, texts) if found is not None]
    assert [(part, parts) for _, part, parts in told] == [(number, len(texts)) for number in range(1, len(texts) + 1)]
    assert (members_of(texts[0]) is None) is (len(texts) > 1)
    return tuple(rank for text, _, _ in told for rank in ranks_in(text))


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((0,), "ranks=0"),
        ((0, 1), "ranks=0,1"),
        (range(1024), "ranks=0-1023"),
        ((*range(26), 30), "ranks=0-25,30"),
        (range(0, 127, 2), "ranks=0-126:2"),
        ((5, *range(8, 128, 8), 3), "ranks=5,8-120:8,3"),
        ((3, 1, 2), "ranks=3,1,2"),
        ((), "ranks="),
    ],
)
def test_what_is_written(ranks: Sequence[int], text: str) -> None:
    assert spell_members(ranks) == [text]
    assert read([text]) == tuple(ranks)


def test_several_records_say_which_part_they_are() -> None:
    squares = [number**2 for number in range(32)]
    assert spell_members(squares) == [
        "ranks=0,1,4,9,16,25,36,49,64,81,100,121,144,169,196 part=1/3",
        "ranks=225,256,289,324,361,400,441,484,529,576,625,676 part=2/3",
        "ranks=729,784,841,900,961 part=3/3",
    ]


memberships = st.one_of(
    st.lists(st.integers(0, MOST - 1), unique=True, max_size=MOST),
    st.sets(st.integers(0, MOST - 1), max_size=MOST).map(sorted),
    st.lists(
        st.builds(range, st.integers(0, MOST), st.integers(0, MOST), st.integers(1, 300)), min_size=1, max_size=9
    ).map(lambda runs: list(dict.fromkeys(rank for run in runs for rank in run))),
)


@given(memberships)
def test_every_membership_is_read_as_it_was_written(ranks: list[int]) -> None:
    parts = spell_members(ranks)
    assert all(len(part.encode()) <= FINGERPRINT_BYTES for part in parts)
    assert read(parts) == tuple(ranks)


@pytest.mark.parametrize(
    "text", ["", "ranks", "ranks=0-5…", "peer=3", "ranks=0-3 part=x/2", "ranks=0-3 part=1/2", "ranks=0-3 part=0/0"]
)
def test_what_is_no_membership_is_not_taken_for_one(text: str) -> None:
    assert members_of(text) is None


def test_a_damaged_run_is_not_followed_for_ever() -> None:
    found = members_of("ranks=0-99999999999999999999")
    assert found is not None
    assert len(found) < 1 << 20
