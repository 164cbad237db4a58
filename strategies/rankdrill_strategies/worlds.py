"""World sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from rankdrill.drawing import drawn_for, tells_size
from rankdrill.errors import UsageError
from rankdrill_strategies.arguments import check_count

__all__ = ["worlds"]

_SMALL = 4  # ranks; nearly every defect between ranks shows by then, and a bigger world only costs more


def worlds(*, min_ranks: int = 1, max_ranks: int = 4) -> st.SearchStrategy[int]:
    """World sizes: numbers of ranks, from `min_ranks` to `max_ranks`, both included.

    Where bigger worlds are allowed, half of those drawn still have at most four ranks. Shrinks towards
    `min_ranks`: give ``min_ranks=2`` where one rank alone proves nothing.

        @pytest.mark.ranks(worlds(min_ranks=2))
        @given(payloads=per_rank(picklables()))
        def test_everyone_gets_everything(rank, payloads): ...

    Drawn by a test that runs on ranks, it is the size of the world that the example runs on; raises `UsageError`
    where that is none of these.
    """
    check_count("min_ranks", min_ranks, at_least=1)
    check_count("max_ranks", max_ranks, at_least=1)
    if max_ranks < min_ranks:
        raise UsageError(
            f"min_ranks={min_ranks} is above max_ranks={max_ranks}; no world has so few and so many ranks, swap them"
        )
    return tells_size(_sizes(min_ranks, max_ranks), int)


@st.composite
def _sizes(draw: Callable[[st.SearchStrategy[Any]], Any], least: int, most: int) -> int:
    running = drawn_for()
    if running is not None:
        if not least <= running.world_size <= most:
            raise UsageError(
                f"worlds(min_ranks={least}, max_ranks={most}) in a test on {running.world_size} ranks; write "
                "@pytest.mark.ranks(worlds(...)) for a test whose world is drawn"
            )
        return running.world_size
    every = st.integers(least, most)
    size: int = draw(st.integers(least, _SMALL) | every if least <= _SMALL < most else every)
    return size
