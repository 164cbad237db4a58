"""Containers and objects around drawn parts, and parts that occur twice."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies import specimens
from rankdrill_strategies.groups import from_groups

__all__ = ["containers", "shared"]

_MAX_SIZE = 3  # items
_Parts = st.SearchStrategy[Any]


def containers(parts: _Parts, keys: _Parts) -> _Parts:
    """Every kind of container, of `parts`, with `keys` where members must be hashable."""
    items = st.dictionaries(keys, parts, max_size=_MAX_SIZE)
    several = st.lists(parts, max_size=_MAX_SIZE)
    members = st.lists(keys, max_size=_MAX_SIZE)
    sequences = several | several.map(tuple)
    sets = members.map(set) | members.map(frozenset)
    library = st.one_of(
        st.builds(deque, several, maxlen=st.sampled_from([None, _MAX_SIZE, 0])),
        items.map(OrderedDict),
        st.builds(defaultdict, st.sampled_from([None, list]), items),
        members.map(Counter),
        st.builds(_tagged, st.builds(specimens.TaggedList, several), parts),
        st.builds(_tagged, st.builds(specimens.TaggedDict, items), parts),
    )
    return from_groups(sequences, items, sets, library, _dataclasses(parts), _objects(parts))


def _dataclasses(parts: _Parts) -> _Parts:
    kinds = (specimens.Record, specimens.Slotted, specimens.Frozen, specimens.FrozenSlotted, specimens.Couple)
    return st.builds(_call, st.sampled_from(kinds), parts, parts)


def _objects(parts: _Parts) -> _Parts:
    of_one = (specimens.Reduced, specimens.Stateful, specimens.Prickly, specimens.RefusalError, specimens.Outer.Inner)
    return st.one_of(
        st.builds(_call, st.sampled_from(of_one), parts),
        st.builds(lambda payload: specimens.NewArguments(payload=payload), parts),
        st.builds(specimens.HalfSlotted, parts, parts),
        st.builds(lambda payload: specimens.HalfSlotted(free=payload), parts),
        st.builds(lambda payload: SimpleNamespace(payload=payload), parts),
        st.builds(specimens.Node, parts, st.lists(parts, max_size=_MAX_SIZE)),
    )


def _call(kind: Callable[..., Any], *parts: Any) -> Any:
    return kind(*parts)


def _tagged(container: Any, tag: Any) -> Any:
    container.tag = tag
    return container


# ---------------------------------------------------------------------------------------------- sharing


def shared(parts: _Parts) -> _Parts:
    """Structures in which one part, the very same object, occurs at least twice."""
    return st.builds(_call, st.sampled_from(_SHARERS), parts)


def _in_list(part: Any) -> Any:
    return [part, part]


def _at_two_depths(part: Any) -> Any:
    return (part, [part])


def _in_dict(part: Any) -> Any:
    return {"a": part, "b": {"c": part}}


def _in_object(part: Any) -> Any:
    return specimens.Record(part, specimens.Reduced(part))


def _in_deque(part: Any) -> Any:
    return deque([part, None, part])


_SHARERS = (_in_list, _at_two_depths, _in_dict, _in_object, _in_deque)
