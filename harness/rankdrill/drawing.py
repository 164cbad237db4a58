"""What an example of Hypothesis's is drawn for: told by who runs it on ranks, asked by who draws.

The engine calls strategies with nothing but its choices, so what they are to fit has to be found from where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["DrawnFor", "drawing_for", "drawn_for", "size_told", "tells_size"]

_Strategy = TypeVar("_Strategy")


@dataclass(frozen=True)
class DrawnFor:
    """A world of `world_size` ranks; of each, if that is known, how many of which steps it takes without a fault, by
    kind and op as in ``collective.all_reduce``.
    """

    world_size: int
    steps: tuple[Mapping[str, int], ...] | None = None


_size_in: WeakKeyDictionary[Any, Callable[[Any], int]] = WeakKeyDictionary()
_asked: ContextVar[Callable[[], DrawnFor] | None] = ContextVar("rankdrill.drawing", default=None)


@contextmanager
def drawing_for(ask: Callable[[], DrawnFor] | None) -> Iterator[None]:
    """Until this ends, what is drawn is for the world that `ask` tells of; for none in particular with None."""
    token = _asked.set(ask)
    try:
        yield
    finally:
        _asked.reset(token)


def drawn_for() -> DrawnFor | None:
    """The world that the example now being drawn is for, or None."""
    ask = _asked.get()
    return ask() if ask is not None else None


def tells_size(strategy: _Strategy, size: Callable[[Any], int]) -> _Strategy:
    """`strategy`, of whose values, where somebody gives them instead of drawing them, `size` says what world is meant.

    So an explicit example says it that pins one which was drawn.
    """
    _size_in[strategy] = size
    return strategy


def size_told(strategies: Mapping[str, Any], values: Mapping[str, Any]) -> int | None:
    """The world size that `values`, given for those of `strategies`, speak of; None if they do not."""
    told = (_size_in[strategy](values[name]) for name, strategy in strategies.items() if strategy in _size_in)
    return next(told, None)
