"""Several draws from one strategy, of which Hypothesis copies none over another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.control import current_build_context
from hypothesis.internal.conjecture import data as of_hypothesis

__all__ = ["apart"]

# What Hypothesis calls a list whose elements have to be unlike each other; 6.170.0 has none, 6.170.8 has. Private, and
# told by no public strategy alone: a list that is unique for nothing shrinks to other elements than the simplest.
_UNIQUE: int | None = getattr(of_hypothesis, "UNIQUE_COLLECTION_LABEL", None)


@contextmanager
def apart() -> Iterator[None]:
    """What is drawn until this ends is left as it was drawn.

    Where the same is drawn twice, five of six examples are others of which one part was copied over its like. So a
    draw for each of several ranks would mostly be one of them again, and what two ranks have alike is drawn soon
    anyway. An older Hypothesis goes on copying.
    """
    data: Any = current_build_context().data
    if _UNIQUE is None:
        yield
        return
    data.start_span(_UNIQUE)
    try:
        yield
    finally:
        data.stop_span()
