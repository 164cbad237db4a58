"""What each call looks at, in C: to Python attributes as any others, and a depth that each thread has of its own."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from rankdrill.boundary.gate import Gate
from rankdrill.boundary.habits import Habit
from rankdrill.native import hot

pytestmark = pytest.mark.skipif(hot is None, reason="the C was not built")


class Kept:
    """Something that can be looked for once it is gone."""


def test_what_ranks_look_at_lies_in_c() -> None:
    assert hot is not None
    assert issubclass(Gate, hot.Gate)
    assert issubclass(Habit, hot.Suited)
    assert isinstance(Gate().inside, hot.Inside)


@pytest.mark.parametrize("kind", ["Gate", "Suited"])
def test_a_field_is_an_attribute_as_any_other(kind: str) -> None:
    looked: Any = type("Looked", (getattr(hot, kind),), {})()
    with pytest.raises(AttributeError, match="ledger"):
        _ = looked.ledger
    looked.ledger = kept = Kept()
    assert looked.ledger is kept
    looked.ledger = None
    assert looked.ledger is None
    del looked.ledger
    with pytest.raises(AttributeError):
        _ = looked.ledger
    looked.of_its_own = 3
    assert looked.of_its_own == 3


@pytest.mark.parametrize("kind", ["Gate", "Suited"])
def test_what_a_field_holds_is_let_go_with_it(kind: str) -> None:
    looked: Any = type("Looked", (getattr(hot, kind),), {})()
    looked.watch = Kept()
    gone = weakref.ref(looked.watch)
    del looked
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", ["Gate", "Suited"])
def test_a_circle_through_a_field_is_found(kind: str) -> None:
    looked: Any = type("Looked", (getattr(hot, kind),), {})()
    looked.watch = kept = Kept()
    kept.of = looked  # type: ignore[attr-defined]
    gone = weakref.ref(kept)
    del looked, kept
    gc.collect()
    assert gone() is None


def test_each_thread_has_a_depth_of_its_own() -> None:
    assert hot is not None
    inside, seen = hot.Inside(), []
    inside.depth += 2

    def elsewhere() -> None:
        seen.append(inside.depth)
        inside.depth = 7
        seen.append(inside.depth)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert (seen, inside.depth, hot.Inside().depth) == ([0, 7], 2, 0)


def test_a_depth_is_a_number_and_stays() -> None:
    assert hot is not None
    inside = hot.Inside()
    inside.depth = 4
    with pytest.raises(TypeError):
        inside.depth = "deep"
    with pytest.raises(AttributeError):
        del inside.depth
    assert inside.depth == 4


def test_a_process_has_only_so_many_keys_and_gets_them_back() -> None:
    assert hot is not None
    held = [hot.Inside()]
    with pytest.raises(RuntimeError, match="no more keys"):
        held.extend(hot.Inside() for _ in range(1 << 12))  # POSIX has 1 024 of a process
    del held
    assert hot.Inside().depth == 0
