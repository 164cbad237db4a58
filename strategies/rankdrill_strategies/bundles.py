"""Ready-made values, one or many in a payload: what is lost of any of them shows within few examples.

Which ones is said by one string, a character for each. So Hypothesis draws many at the price of one choice, deletes
and simplifies them when it shrinks, and does not spend most of its examples on doubling one of them, as it does with
values that are drawn one by one. Of more than 256 characters it draws the first 256 four times out of five.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies import everyday
from rankdrill_strategies.everyday import Makers, Table

__all__ = ["bundles", "ready_made"]

_Draw = Callable[[st.SearchStrategy[Any]], Any]

_FIRST = 0x100  # the character of the first: Hypothesis takes none of those from here on for simpler than another

# The simplest kind first, for that is what shrinks to. The number says how many of a table are of every day; what
# comes after is drawn less often.
_PLAIN: tuple[tuple[Table, int], ...] = (
    (everyday.SINGLES, 3),
    (everyday.INTS, 23),
    (everyday.TEXTS, 27),
    (everyday.FLOATS, 15),
    (everyday.TUPLES, 6),
    (everyday.LISTS, 13),
    (everyday.DICTS, 18),
)
_OTHER: tuple[tuple[Table, int], ...] = (
    (everyday.BYTES, 21),
    (everyday.EMPTY, 14),
    (everyday.SETS, 10),
    (everyday.VALUES, 14),
    (everyday.TIMES, 5),
    (everyday.EXCEPTIONS, 10),
    (everyday.STATES, 0),
)
_SHARED: tuple[tuple[Table, int], ...] = ((everyday.TWICE, 6),)
_TENSORS: tuple[tuple[Table, int], ...] = ((everyday.TENSORS, 28), (everyday.TORCH, 8), (everyday.MODULES, 1))
_ARRAYS: tuple[tuple[Table, int], ...] = ((everyday.ARRAYS, 25), (everyday.SCALARS, 4))
_TENSORS_SHARED: tuple[tuple[Table, int], ...] = ((everyday.TENSORS_TWICE, 2),)
_ARRAYS_SHARED: tuple[tuple[Table, int], ...] = ((everyday.ARRAYS_TWICE, 1),)


def ready_made(*, tensors: bool, arrays: bool, sharing: bool) -> Makers:
    """Makers of values of every kind: first those of every day, then the others, of both the simplest first."""
    tables = [*_PLAIN, *_OTHER]
    tables += [*_TENSORS, *(_TENSORS_SHARED if sharing else ())] if tensors else []
    tables += [*_ARRAYS, *(_ARRAYS_SHARED if sharing else ())] if arrays else []
    return _in_order([*tables, *(_SHARED if sharing else ())])


def _in_order(tables: Sequence[tuple[Table, int]]) -> Makers:
    often = [make for table, count in tables for make in table[:count]]
    return Makers([*often, *(make for table, count in tables for make in table[count:])])


@dataclass(frozen=True, repr=False)
class _Kit:
    """What bundles are made of; with little to say when Hypothesis prints a strategy."""

    makers: Makers
    names: tuple[st.SearchStrategy[str], ...]
    ways: tuple[Callable[[list[Any]], Any], ...]
    drawn: st.SearchStrategy[Any]
    others: Sequence[st.SearchStrategy[Any]]

    def __repr__(self) -> str:
        return f"{self.makers!r} and {len(self.others)} others"


def bundles(
    makers: Makers,
    *,
    max_parts: int,
    drawn: st.SearchStrategy[Any],
    others: Sequence[st.SearchStrategy[Any]],
    sharing: bool,
) -> st.SearchStrategy[Any]:
    """What one of `makers` makes, or up to `max_parts` of them in one container, one of these `drawn` at times.

    Every so often one of `others` instead. With `sharing`, one of them may be there twice.
    """
    ways = _WAYS + (_WAYS_SHARED if sharing else ())
    return _bundles(_Kit(makers, _names(len(makers), max_parts), ways, drawn, others))


def _names(count: int, max_parts: int) -> tuple[st.SearchStrategy[str], ...]:
    """Few characters, on average five at most; and many."""
    alphabet = st.characters(min_codepoint=_FIRST, max_codepoint=_FIRST + count - 1)
    least = max_parts * 2 // 3
    return st.text(alphabet, max_size=max_parts), st.text(alphabet, min_size=least, max_size=max_parts)


@st.composite
def _bundles(draw: _Draw, kit: _Kit) -> Any:
    named = draw(kit.names[draw(st.integers(0, 1))])
    count = len(kit.ways) + _PLAIN_WAYS
    way = draw(st.integers(0, count + len(kit.others) - 1))
    if way >= count:
        return draw(kit.others[way - count])
    # What encodes plain data falls back on pickle where there is anything else, and is right then.
    makers = kit.makers if way < len(kit.ways) else _PLAIN_MAKERS
    parts = [makers[(ord(name) - _FIRST) % len(makers)]() for name in named]
    if makers is kit.makers and parts and draw(st.integers(0, 3)) == 1:
        parts[-1] = draw(kit.drawn)
    return kit.ways[way % len(kit.ways)](parts)


_PLAIN_MAKERS = _in_order(_PLAIN)


def _bare(parts: list[Any]) -> Any:
    """One by itself; None for none."""
    return parts[0] if parts else None


def _listed(parts: list[Any]) -> Any:
    """One by itself, several in a list; without None at its end, or no list would shrink to one of fewer."""
    if len(parts) < 2:
        return _bare(parts)
    while parts and parts[-1] is None:
        parts.pop()
    return parts


def _again(parts: list[Any]) -> Any:
    """The first, the very same object, once more."""
    return [*parts, *parts[:1]]


def _named_again(parts: list[Any]) -> Any:
    return _named(_again(parts))


def _named(parts: list[Any]) -> dict[str, Any]:
    """Under names in no order."""
    return dict(zip(_NAMES, parts, strict=False))


_NAMES = ("b", "a", "step", "x", "0", "é", "c", "k9", "k10", "y", "z", "lr", "A", "k1", "k0", "w", "v")


def _numbered(parts: list[Any]) -> dict[int, Any]:
    return dict(zip((1, 0, 10, 9, -1, 2, 7, 100, 5, 3, 4, 8, 6, 11, 13, 12), parts, strict=False))


def _lopsided(parts: list[Any]) -> Any:
    return [*parts[:1], {"rest": tuple(parts[1:])}]


_WAYS: tuple[Callable[[list[Any]], Any], ...] = (
    *(_listed, _bare, _bare, _bare, list, _named, tuple, _lopsided, _numbered),
    lambda parts: OrderedDict(_named(parts)),
)
_PLAIN_WAYS = 4  # the first of them once more, with nothing but plain data
_WAYS_SHARED = (_again, _again, _named_again)
