"""One payload for each rank, and unfairly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from rankdrill.drawing import drawn_for, tells_size
from rankdrill_strategies.anything import draws_anything
from rankdrill_strategies.apart import apart
from rankdrill_strategies.arguments import check_count, check_flag, check_strategy
from rankdrill_strategies.big import big_payloads
from rankdrill_strategies.worlds import worlds

__all__ = ["per_rank"]


def per_rank(
    strategy: st.SearchStrategy[Any],
    world_size: int | st.SearchStrategy[int] | None = None,
    *,
    absent: bool | None = None,
    big: st.SearchStrategy[Any] | None = None,
    uneven: bool | None = None,
) -> st.SearchStrategy[list[Any]]:
    """Lists of payloads, one for each rank, drawn from `strategy`.

    `world_size` is a number of ranks, or a strategy for it, or None for `worlds()`: on ranks, as many as there are.
    Some lists are unfair as real jobs are: with `absent`, some ranks have None; with `uneven`, one rank's payload comes
    from `big` (by default `big_payloads()`) while the others stay small. Unless you say so they are unfair where
    `strategy` draws whatever pickles, as `picklables()` does: of any other nothing is drawn but its own values. Shrinks
    towards few ranks that all have a payload.

        @given(per_rank(picklables(), worlds(min_ranks=2)))
        def test_rank_order(payloads):
            world_size = len(payloads)
    """
    check_strategy("strategy", strategy)
    anything = draws_anything(strategy)
    absent = anything if absent is None else check_flag("absent", absent)
    uneven = anything or big is not None if uneven is None else check_flag("uneven", uneven)
    bulk = check_strategy("big", big_payloads() if big is None else big)
    if world_size is None or isinstance(world_size, st.SearchStrategy):
        sizes = world_size
    else:
        sizes = st.just(check_count("world_size", world_size, at_least=1))
    lists = _lists(strategy, sizes, absent, bulk if uneven else None)
    return tells_size(lists, len) if world_size is None else lists


@st.composite
def _lists(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    strategy: st.SearchStrategy[Any],
    sizes: st.SearchStrategy[int] | None,
    absent: bool,
    bulk: st.SearchStrategy[Any] | None,
) -> list[Any]:
    running = drawn_for() if sizes is None else None
    drawn = running.world_size if running is not None else draw(worlds() if sizes is None else sizes)
    size = check_count("world_size", drawn, at_least=1)
    with apart():
        payloads = [draw(strategy) for _ in range(size)]
    if absent and draw(st.booleans()):
        payloads = [None if draw(st.booleans()) else payload for payload in payloads]
    if bulk is not None and draw(st.booleans()):
        payloads[draw(st.integers(0, size - 1))] = draw(bulk)
    return payloads
