"""World sizes."""

from __future__ import annotations

from hypothesis import strategies as st

from rankdrill.errors import UsageError
from rankdrill_strategies.arguments import check_count

__all__ = ["worlds"]

_SMALL = 4  # ranks; nearly every defect between ranks shows by then, and a bigger world only costs more


def worlds(*, min_ranks: int = 1, max_ranks: int = 4) -> st.SearchStrategy[int]:
    """World sizes: numbers of ranks, from `min_ranks` to `max_ranks`, both included.

    Where bigger worlds are allowed, half of those drawn still have at most four ranks. Shrinks towards
    `min_ranks`: give ``min_ranks=2`` where one rank alone proves nothing.

        @given(worlds(min_ranks=2))
        def test_everyone_gets_everything(n): ...
    """
    check_count("min_ranks", min_ranks, at_least=1)
    check_count("max_ranks", max_ranks, at_least=1)
    if max_ranks < min_ranks:
        raise UsageError(
            f"min_ranks={min_ranks} is above max_ranks={max_ranks}; no world has so few and so many ranks, swap them"
        )
    every = st.integers(min_ranks, max_ranks)
    if min_ranks <= _SMALL < max_ranks:
        return st.integers(min_ranks, _SMALL) | every
    return every
