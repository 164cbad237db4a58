"""Leaves: values without parts, and what may be a key of a dict."""

from __future__ import annotations

import array
import functools
import math
import os.path
import re
from datetime import UTC, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies import specimens
from rankdrill_strategies.groups import from_groups

__all__ = ["atoms", "hashables", "references"]

_MAX_TEXT = 12  # characters, and bytes
_EDGES = [8, 16, 31, 32, 63, 64, 2039, 2040, 4000]  # bits: where pickle changes its opcode, and C its integer
_REFERENCES = [
    int,
    len,
    math.sin,
    os.path.join,
    specimens.twice,
    specimens.Outer.triple,
    specimens.Outer.make,
    specimens.Outer.Inner,
    specimens.Record,
    specimens.NOTHING,
    specimens.Colour.RED,
    specimens.Colour.GREEN,
    specimens.Level.HIGH,
    specimens.Mode.FAST,
    specimens.Rights.READ | specimens.Rights.RUN,
    specimens.Rights(0),
    list[int],
]


def references() -> st.SearchStrategy[Any]:
    """What pickle keeps by name: classes, functions, members of enums, a singleton."""
    return st.sampled_from(_REFERENCES)


def atoms() -> st.SearchStrategy[Any]:
    """Values without parts, mutable ones included."""
    mutable = st.one_of(
        st.binary(max_size=_MAX_TEXT).map(bytearray),
        st.binary(max_size=_MAX_TEXT).map(lambda raw: array.array("B", raw)),
        st.just(object).map(lambda kind: kind()),
    )
    signalling = st.sampled_from(["sNaN", "-sNaN1"]).map(Decimal)
    unhashable = signalling | st.builds(slice, st.none() | st.integers(), st.integers())
    return from_groups(*_value_groups(), mutable | unhashable)


def hashables(*, max_leaves: int = 4) -> st.SearchStrategy[Any]:
    """Values fit for a set or as a key: NaN, surrogates, nested tuples, frozen dataclasses."""
    leaves = from_groups(*_value_groups())
    nested = st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.lists(parts, max_size=3).map(tuple),
            st.frozensets(parts, max_size=3),
            st.builds(specimens.Frozen, parts, parts),
            st.builds(specimens.FrozenSlotted, parts),
            st.builds(specimens.Couple, parts, parts),
        ),
        max_leaves=max_leaves,
    )
    return from_groups(leaves, nested)


def _value_groups() -> tuple[st.SearchStrategy[Any], ...]:
    # Each drawn NaN is another object: as keys they are different ones.
    special_floats = st.sampled_from(["-0.0", "nan", "inf", "-inf"]).map(float)
    library = _times() | _library()
    return _everyday(), _everyday(), special_floats, _odd_numbers(), _odd_texts(), references(), library


def _everyday() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=_MAX_TEXT),
        st.binary(max_size=_MAX_TEXT),
    )


def _odd_numbers() -> st.SearchStrategy[Any]:
    big = st.builds(lambda bits, less: (1 << bits) - less, st.sampled_from(_EDGES), st.integers(0, 1))
    return st.one_of(
        big,
        big.map(lambda number: ~number),
        st.builds(complex, st.floats(), st.floats()),
        st.decimals(allow_nan=False) | st.just("NaN").map(Decimal),
        st.fractions(),
        st.integers().map(specimens.TaggedInt),
    )


def _odd_texts() -> st.SearchStrategy[Any]:
    return st.text(st.characters(exclude_categories=()), max_size=_MAX_TEXT) | st.text(
        st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF, exclude_categories=()), max_size=_MAX_TEXT
    )


def _library() -> st.SearchStrategy[Any]:
    """Values of the standard library."""
    return st.one_of(
        st.sampled_from([Ellipsis, NotImplemented]),
        st.builds(range, st.integers(-3, 3), st.integers(-3, 3), st.sampled_from([1, 2, -1])),
        st.uuids(),
        st.just("a/b").map(PurePosixPath),
        st.just("a+").map(re.compile),
        st.integers().map(lambda n: functools.partial(specimens.twice, n)),
    )


def _times() -> st.SearchStrategy[Any]:
    # Fixed offsets rather than named zones: those need a time zone database on every machine.
    minutes = st.integers(-23 * 60, 23 * 60)
    zones = st.none() | minutes.map(lambda offset: timezone(timedelta(minutes=offset)))
    return st.one_of(st.dates(), st.times(), st.timedeltas(), st.datetimes(timezones=zones), st.just(UTC))
