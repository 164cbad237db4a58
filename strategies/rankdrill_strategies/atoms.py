"""Leaves: values without parts, and what may be a key of a dict."""

from __future__ import annotations

import array
import math
import os.path
from collections.abc import Callable
from datetime import timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies import everyday, specimens
from rankdrill_strategies.everyday import from_tables
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

_Draw = Callable[[st.SearchStrategy[Any]], Any]


def references() -> st.SearchStrategy[Any]:
    """What pickle keeps by name: classes, functions, members of enums, a singleton."""
    return st.sampled_from(_REFERENCES)


def atoms() -> st.SearchStrategy[Any]:
    """Values without parts, mutable ones included."""
    return from_groups(*_value_groups(), _ready_made(), _mutable())


def hashables() -> st.SearchStrategy[Any]:
    """Values fit for a set or as a key: NaN, surrogates, nested tuples, frozen dataclasses."""
    leaves = from_groups(*_value_groups(), from_tables(_HASHABLE))
    nested = _nested(from_groups(leaves, _nested(leaves)))
    return from_groups(leaves, leaves, leaves, nested)


def _value_groups() -> tuple[st.SearchStrategy[Any], ...]:
    texts, raw = from_tables(everyday.TEXTS), from_tables(everyday.BYTES)
    return (
        from_tables(everyday.SINGLES),
        from_groups(from_tables(everyday.INTS), st.integers(), _big_ints()),
        from_groups(texts, texts, st.text(max_size=_MAX_TEXT), _surrogates()),
        from_groups(from_tables(everyday.FLOATS), st.floats()),
        from_groups(raw, raw, st.binary(max_size=_MAX_TEXT)),
        from_groups(from_tables(_HASHABLE), from_tables(everyday.TIMES), _odd_numbers(), _times(), references()),
    )


def _ready_made() -> st.SearchStrategy[Any]:
    """Mutable, or of several parts, and whole."""
    empty = from_tables(everyday.EMPTY)
    grouped = from_groups(*map(from_tables, (everyday.LISTS, everyday.TUPLES, everyday.DICTS, everyday.SETS)))
    rest = from_groups(from_tables(everyday.EXCEPTIONS), from_tables(everyday.VALUES), from_tables(everyday.STATES))
    return from_groups(empty, grouped, grouped, rest)


def _is_hashable(make: Callable[[], Any]) -> bool:
    try:
        hash(make())
    except TypeError:
        return False
    return True


# Signalling NaN hashes no more than slices do.
_HASHABLE = tuple(make for make in everyday.VALUES if make is not object and _is_hashable(make))


@st.composite
def _nested(draw: _Draw, parts: st.SearchStrategy[Any]) -> Any:
    kind = draw(st.sampled_from(_NESTED))
    return kind(draw(st.lists(parts, max_size=2)))


_NESTED: tuple[Callable[[list[Any]], Any], ...] = (
    tuple,
    frozenset,
    lambda parts: specimens.Frozen(*parts),
    lambda parts: specimens.FrozenSlotted(*parts),
    lambda parts: specimens.Couple(*parts, *[None] * (2 - len(parts))),
)


@st.composite
def _mutable(draw: _Draw) -> Any:
    return draw(st.sampled_from(_MUTABLE))(draw(st.binary(max_size=_MAX_TEXT)))


_MUTABLE: tuple[Callable[[bytes], Any], ...] = (
    bytearray,
    lambda raw: array.array("B", raw),
    lambda raw: object(),
    lambda raw: Decimal("sNaN"),
    lambda raw: Decimal("-sNaN1"),
    lambda raw: slice(None, len(raw)),
)


@st.composite
def _big_ints(draw: _Draw) -> int:
    number: int = (1 << draw(st.sampled_from(_EDGES))) - draw(st.integers(0, 1))
    return ~number if draw(st.booleans()) else number


@st.composite
def _odd_numbers(draw: _Draw) -> Any:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.fractions())
    if kind == 1:
        return draw(st.decimals(allow_nan=False))
    if kind == 2:
        return complex(draw(st.floats()), draw(st.floats()))
    return specimens.TaggedInt(draw(st.integers()))


def _surrogates() -> st.SearchStrategy[str]:
    return st.one_of(
        st.text(st.characters(exclude_categories=()), max_size=_MAX_TEXT),
        st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF, exclude_categories=()), max_size=_MAX_TEXT),
    )


def _times() -> st.SearchStrategy[Any]:
    # Fixed offsets rather than named zones: those need a time zone database on every machine.
    return st.one_of(st.dates(), st.times(), st.timedeltas(), st.datetimes(timezones=st.none() | _zones()))


@st.composite
def _zones(draw: _Draw) -> timezone:
    return timezone(timedelta(minutes=draw(st.integers(-23 * 60, 23 * 60))))
