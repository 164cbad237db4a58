"""Containers and objects around drawn parts, and parts that occur twice."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies import everyday, specimens
from rankdrill_strategies.everyday import from_tables
from rankdrill_strategies.groups import from_groups

__all__ = ["containers", "shared"]

_MAX_SIZE = 3  # items
_Parts = st.SearchStrategy[Any]
_Draw = Callable[[_Parts], Any]


def containers(parts: _Parts, keys: _Parts) -> _Parts:
    """Every kind of container, of `parts`, with `keys` where members must be hashable."""
    several = st.lists(parts, max_size=_MAX_SIZE)
    items = st.dictionaries(keys, parts, max_size=_MAX_SIZE)
    members = st.lists(keys, max_size=_MAX_SIZE)
    library = _library(several, items, members, parts)
    return from_groups(
        _kind_of((list, tuple), several),
        from_groups(_in_order(parts), items),
        from_groups(_kind_of((list, tuple), several), _kind_of((set, frozenset), members)),
        library,
        _objects(parts),
    )


@st.composite
def _kind_of(draw: _Draw, kinds: tuple[Callable[..., Any], ...], items: _Parts) -> Any:
    return draw(st.sampled_from(kinds))(draw(items))


@st.composite
def _in_order(draw: _Draw, parts: _Parts) -> dict[Any, Any]:
    """A dict whose keys are in no order."""
    return {key: draw(parts) for key in draw(_KEYS)}


_KEYS = from_tables(everyday.KEYS)


@st.composite
def _library(draw: _Draw, several: _Parts, items: _Parts, members: _Parts, parts: _Parts) -> Any:
    kind = draw(st.sampled_from(_LIBRARY))
    if kind is deque:
        return deque(draw(several), maxlen=draw(st.sampled_from([None, _MAX_SIZE, 0])))
    if kind is OrderedDict:
        return OrderedDict(draw(items))
    if kind is defaultdict:
        return defaultdict(draw(st.sampled_from([None, list])), draw(items))
    if kind is Counter:
        return Counter(draw(members))
    return _tagged(kind(draw(several if kind is specimens.TaggedList else items)), draw(parts))


_LIBRARY: tuple[Any, ...] = (deque, OrderedDict, defaultdict, Counter, specimens.TaggedList, specimens.TaggedDict)


def _tagged(container: Any, tag: Any) -> Any:
    container.tag = tag
    return container


@st.composite
def _objects(draw: _Draw, parts: _Parts) -> Any:
    make, count = draw(st.sampled_from(_OBJECTS))
    return make(*[draw(parts) for _ in range(count)])


# How they are made, and of how many parts.
_OBJECTS: tuple[tuple[Callable[..., Any], int], ...] = (
    (specimens.Record, 2),
    (specimens.Couple, 2),
    (specimens.Slotted, 2),
    (specimens.Frozen, 2),
    (specimens.FrozenSlotted, 2),
    (specimens.Reduced, 1),
    (specimens.Stateful, 1),
    (specimens.Prickly, 1),
    (specimens.RefusalError, 1),
    (specimens.Outer.Inner, 1),
    (lambda payload: specimens.NewArguments(payload=payload), 1),
    (specimens.HalfSlotted, 2),
    (lambda payload: specimens.HalfSlotted(free=payload), 1),
    (lambda payload: SimpleNamespace(payload=payload), 1),
    (lambda label, *links: specimens.Node(label, [*links]), 3),
)


# ---------------------------------------------------------------------------------------------- sharing


@st.composite
def shared(draw: _Draw, parts: _Parts) -> Any:
    """Structures in which one part, the very same object, occurs at least twice."""
    return draw(st.sampled_from(_SHARERS))(draw(parts))


_SHARERS: tuple[Callable[[Any], Any], ...] = (
    lambda part: [part, part],
    lambda part: (part, [part]),
    lambda part: {"a": part, "b": part},
    lambda part: {"a": part, "b": {"c": part}},
    lambda part: specimens.Record(part, specimens.Reduced(part)),
    lambda part: deque([part, None, part]),
)
