"""From what pytest has collected to a test on ranks."""

from __future__ import annotations

import itertools

import pytest

from rankdrill.errors import UsageError
from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import TestPlace
from rankdrill.plugin.item import RankedItem, Session
from rankdrill.plugin.marker import SIZE_PARAMETER, RanksMark

__all__ = ["make_ranked"]

_numbers = itertools.count()


def make_ranked(item: pytest.Function, mark: RanksMark, shared: Session) -> RankedItem:
    """Turn `item`, which pytest has just collected, into a test on ranks."""
    kind = type(item)
    ranked = _kind_of(item)
    item.__class__ = ranked if kind is pytest.Function else type(kind.__name__, (ranked, kind), {})
    assert isinstance(item, RankedItem)
    item.mark = mark
    item.size = _size_of(item, mark)
    item.shared = shared
    item.place = TestPlace(item.nodeid, str(item.path), _tmp_path(item), item.location)
    item.following, item.ahead = None, None
    item.merged, item.outcome, item._uncollected, item._prepared = None, None, None, False
    item.durations, item.told, item.left, item._looked_at = {}, {}, [], (None, {})
    return item


def _kind_of(item: pytest.Function) -> type[RankedItem]:
    if not hasattr(item.obj, "hypothesis"):
        return RankedItem
    from rankdrill.plugin.examples import GivenItem  # imports Hypothesis

    return GivenItem


def _size_of(item: pytest.Function, mark: RanksMark) -> int:
    callspec = getattr(item, "callspec", None)
    if callspec is not None and SIZE_PARAMETER in callspec.params:
        return int(callspec.params[SIZE_PARAMETER])
    if len(mark.sizes) > 1:
        raise UsageError(f"{item.nodeid}: ranks{mark.sizes} needs a test function to parametrize")
    if mark.drawn_size is None:
        return mark.sizes[0]
    from rankdrill.plugin.drawn import smallest_of  # imports Hypothesis

    return smallest_of(mark)


def _tmp_path(item: pytest.Function) -> str:
    name = "".join(letter if letter.isalnum() else "_" for letter in item.name)[:30]
    return str(pytest_seam.base_temp(item.config) / f"{name}-ranks-{next(_numbers)}")
