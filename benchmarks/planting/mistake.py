"""What a planted mistake is, and what planting one takes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["KEEP", "MISTAKES", "Mistake", "copied", "everyday", "rebuilt", "unusual"]

KEEP: Any = object()  # what a change returns for that which it leaves as it is
_DEEPEST = 100  # levels that are rebuilt; what lies deeper is passed on, so that only who means to fails at depth

Carry = Callable[[Any], Any]
Gather = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Mistake:
    """A gather that is right but for one mistake: `gather` takes all ranks' payloads, returns what each receives."""

    name: str
    everyday: bool
    gather: Gather
    ranks: int


MISTAKES: dict[str, Mistake] = {}


def everyday(name: str, *, ranks: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Plant what everybody has done once: what carries one payload, or, with several `ranks`, gathers all."""
    return _planted(name, ranks, is_everyday=True)


def unusual(name: str, *, ranks: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Plant what shows at the end of a buffer, with a rare kind, or in the order of ranks."""
    return _planted(name, ranks, is_everyday=False)


def _planted(name: str, ranks: int, *, is_everyday: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def plant(function: Callable[..., Any]) -> Callable[..., Any]:
        def gather(payloads: list[Any]) -> list[Any]:
            return [function(payload) for payload in payloads]

        assert name not in MISTAKES
        MISTAKES[name] = Mistake(name, is_everyday, gather if ranks == 1 else function, ranks)
        return function

    return plant


def copied(payload: Any) -> Any:
    """What arrives where nothing is wrong."""
    return pickle.loads(pickle.dumps(payload, 5))


def rebuilt(payload: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of lists, tuples, dicts and sets in which each part is what `change` makes of it, unless `KEEP`."""
    memo: dict[int, Any] = {}

    def walk(here: Any, depth: int) -> Any:
        if id(here) in memo:
            return memo[id(here)]
        made = change(here)
        if made is KEEP:
            made = here
        if type(made) in (tuple, set, frozenset) and depth < _DEEPEST:
            made = type(made)(walk(part, depth + 1) for part in made)
        memo[id(here)] = made
        if depth == _DEEPEST:
            return made
        if type(made) is list:
            memo[id(here)] = items = []  # type: ignore[var-annotated]  # of anything
            items.extend(walk(part, depth + 1) for part in made)
            return items
        if type(made) is dict:
            memo[id(here)] = keyed = {}  # type: ignore[var-annotated]  # of anything
            keyed.update((walk(key, depth + 1), walk(value, depth + 1)) for key, value in made.items())
            return keyed
        return made

    return walk(copied(payload), 0)
