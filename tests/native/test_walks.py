"""The lines of a call that is made again are found anew only where a frame is somewhere else, and always right."""

from __future__ import annotations

import _thread
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import pytest
import torch
import torch.distributed as dist

from rankdrill.boundary import callsites
from rankdrill.boundary.callsites import MOST_CALLERS
from rankdrill.native import hot
from rankdrill.step import HANDED_OVER, Kind, Site
from tests.faults.here import Here, rank_here
from tests.torch_can import Can, end_group, needs

BOUND_S = 30.0
MANY = 100  # walks, which is more than are kept
Lines: TypeAlias = "list[tuple[str, int]]"

ones = torch.ones(2)
made: list[Lines] = []
native = pytest.mark.skipif(hot is None, reason="the C was not built, or is not wanted")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with rank_here(ignored=(str(tmp_path),)) as rank:
        store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=30))
        made.clear()
        yield rank
        end_group()


def lines(frame: FrameType | None) -> Lines:
    """Those of this file from `frame` outward, as many as a site tells."""
    found: Lines = []
    while frame is not None and len(found) <= MOST_CALLERS:
        if frame.f_code.co_filename == __file__:
            found.append((frame.f_code.co_name.removesuffix(HANDED_OVER), frame.f_lineno))
        frame = frame.f_back
    return found


def lines_of(site: Site | None) -> Lines:
    found: Lines = []
    while site is not None and site.file == __file__:
        found.append((site.function, site.line))
        site = site.caller
    return found


def call() -> int:
    _ = note(sys._getframe()), dist.all_reduce(ones)  # one line
    return len(made)


def note(frame: FrameType) -> int:
    made.append(lines(frame))
    return len(made)


def assert_told_right(here: Here) -> None:
    told = [lines_of(record.step.site) for record in here.view if record.step.kind is Kind.COLLECTIVE]
    told = [each for each in told if each and each[0][0] in ("call", "made_from_text")]
    assert made
    assert told == made


def through(again: int) -> int:
    return through(again - 1) if again else call()


def one() -> None:
    call()


def two() -> None:
    one()
    one()


def test_from_several_lines_of_several_callers(here: Here) -> None:
    for _ in range(3):
        one()
        two()
        for step in range(2):
            two() if step else one()
    assert len({tuple(each) for each in made}) == 5 + 1
    assert_told_right(here)


def test_however_deep(here: Here) -> None:
    for _ in range(2):
        for depth in (0, 1, 2, MOST_CALLERS - 1, MOST_CALLERS, 60, 3, 2, 1, 0):
            through(depth)
    assert_told_right(here)


def test_only_what_is_further_out_than_is_told_may_differ(here: Here) -> None:
    """The frames that are told are in the same places; they are no longer the outermost."""

    def outer(do: Callable[[], int]) -> None:
        do()

    for _ in range(2):
        through(MOST_CALLERS + 1)
        outer(functools.partial(through, MOST_CALLERS + 1))
    assert_told_right(here)


def generated(times: int) -> Iterator[int]:
    for each in range(times):
        call()
        yield each


@contextmanager
def around() -> Iterator[None]:
    call()
    yield
    call()


def test_in_generators_and_what_is_built_of_them(here: Here) -> None:
    for _ in range(2):
        list(generated(2))
        waiting = generated(3)
        next(waiting)
        two()
        next(waiting)
        with around():
            assert [call() for _ in range(2)]
        sorted([2, 1], key=lambda each: each + 0 * call())
    told = [lines_of(record.step.site) for record in here.view if record.step.kind is Kind.COLLECTIVE]
    assert [each[0] for each in told if each] == [each[0] for each in made]
    assert_told_right(here)


def test_in_threads(here: Here) -> None:
    for _ in range(2):
        thread = threading.Thread(target=two)
        thread.start()
        thread.join()
        two()
    assert made[0][-1][0] == "test_in_threads"
    assert_told_right(here)


TEXT = "def made_from_text(say, reduce, ones):\n{}    say(), reduce(ones)\n"


def test_code_that_is_gone_is_not_taken_for_code_in_its_place(here: Here) -> None:
    for turn in range(MANY):
        place: dict[str, Any] = {}
        exec(compile(TEXT.format("    pass\n" * (turn % 7)), __file__, "exec"), place)
        made_from_text = place["made_from_text"]
        made_from_text(lambda: made.append(lines(sys._getframe(1))), dist.all_reduce, ones)
    assert len({each[0] for each in made}) == 7
    assert_told_right(here)


def test_more_lines_than_are_kept(here: Here) -> None:
    place: dict[str, Any] = {"call": call}
    exec(compile("def many():\n" + "    call()\n" * MANY, __file__, "exec"), place)
    for _ in range(2):
        place["many"]()
    assert len({tuple(each) for each in made}) == MANY
    assert_told_right(here)


@native
def test_who_is_in_the_same_places_does_not_walk(here: Here) -> None:
    """Whoever walks asks which site it is; of one that is remembered nobody asks."""
    needs(Can.SAY_WHO_WAITS)
    asked = []
    for _ in range(MANY):  # Python rewrites what runs often, and is a little further on in it then
        callsites._sites.clear()
        one()
        asked.append(len(callsites._sites))
    assert asked[0] == 1
    assert asked[-1] == 0
    assert_told_right(here)


@native
def test_nothing_is_remembered_in_a_backward_pass(here: Here) -> None:
    """Whose frames are another thread's: they go on meanwhile."""
    for turn in range(MANY):
        if turn % 2:
            callsites.passes.append(sys._getframe())
        callsites._sites.clear()
        try:
            one()
        finally:
            callsites.passes.clear()
        assert callsites._sites or not turn % 2
    assert_told_right(here)


@native
def test_what_begins_a_thread_is_not_what_is_called(here: Here) -> None:
    """Its frames are those of the inner part of a longer stack."""
    for _ in range(2):
        over = threading.Event()

        def first(over: threading.Event = over) -> None:
            call()
            over.set()

        _thread.start_new_thread(first, ())
        assert over.wait(BOUND_S)
        first()
    assert_told_right(here)


@native
def test_a_pass_that_ends_while_a_function_is_met_is_walked_no_more() -> None:
    """Its frames were another thread's, which has ended."""
    assert hot is not None
    passes: list[FrameType] = []
    in_pass, over, told = threading.Event(), threading.Event(), threading.Event()
    found: list[object] = []

    def runs_a_pass() -> None:
        passes.append(sys._getframe())
        in_pass.set()
        over.wait(BOUND_S)
        passes.clear()

    thread = threading.Thread(target=runs_a_pass)

    def classify(code: CodeType) -> int:
        if code.co_name == "runs_a_pass" and not over.is_set():
            over.set()
            thread.join(BOUND_S)
        return 0 if code.co_name in ("back", "runs_a_pass") else 1

    def meet(key: bytes, frames: tuple[FrameType, ...], via: object) -> str:
        return " ".join(each.f_code.co_name for each in frames)

    sites = hot.CallSites(classify, meet, {}, passes)

    def back() -> None:
        found.append(sites(0))
        told.set()

    thread.start()
    assert in_pass.wait(BOUND_S)
    _thread.start_new_thread(back, ())
    assert told.wait(BOUND_S)
    assert found == ["back"]
