"""Structures that contain themselves, each tied around one drawn part.

What is reached first must be able to exist before its contents (a list, a dict, an object with state), or
pickle itself cannot bring it back; within these limits every kind of knot is here.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies import specimens

__all__ = ["knots"]


@st.composite
def knots(draw: Callable[[st.SearchStrategy[Any]], Any], parts: st.SearchStrategy[Any]) -> Any:
    """Structures around one of `parts` from which a way leads back to themselves."""
    return draw(st.sampled_from(_KNOTS))(draw(parts))


def _list(part: Any) -> Any:
    knot = [part]
    knot.append(knot)
    return knot


def _dict(part: Any) -> Any:
    knot = {"part": part}
    knot["self"] = knot
    return knot


def _list_through_tuple(part: Any) -> Any:
    knot: list[Any] = []
    knot.append((part, knot))
    return knot


def _deque(part: Any) -> Any:
    knot: deque[Any] = deque([part])
    knot.append(knot)
    return knot


def _dicts_by_subclass(part: Any) -> Any:
    knot: OrderedDict[str, Any] = OrderedDict(part=part)
    knot["back"] = defaultdict(list, self=knot)
    return knot


def _object(part: Any) -> Any:
    knot = specimens.Record(part)
    knot.payload = {"self": knot}
    return knot


def _stateful(part: Any) -> Any:
    knot = specimens.Stateful()
    knot.payload = [part, knot]
    return knot


def _slotted(part: Any) -> Any:
    knot = specimens.Slotted(part)
    knot.second = knot
    return knot


def _ring(part: Any) -> Any:
    first, second, third = (specimens.Node(label) for label in ("first", "second", "third"))
    first.links, second.links, third.links = [second, part], [third], [first]
    return first


def _friends(part: Any) -> Any:
    """Nodes in sets that lead back to the nodes."""
    one, other = specimens.Node("one", [part]), specimens.Node("other")
    one.friends, other.friends = {one, other}, {one}
    one.team = other.team = frozenset((one, other))
    return one


_KNOTS = (
    _list,
    _dict,
    _list_through_tuple,
    _deque,
    _dicts_by_subclass,
    _object,
    _stateful,
    _slotted,
    _ring,
    _friends,
)
