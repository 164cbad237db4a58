"""Ranks that share a page: what ends their waiting, what is torn, what goes by trays."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_object
from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.line import Line
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.encoding.wire import bytes_of
from rankdrill.gathers.local import endpoint, segment
from rankdrill.gathers.local.local_group import Exchange
from rankdrill.gathers.local.meeting import Meeting
from rankdrill.gathers.local.page import Page
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt, raiser, replaced
from tests.gathers.dying import die, survivors, to_die

SHORT_S = 2.0
SIZE = 3
MIDDLING = 100_000  # bytes: too many for a slot, few enough for a tray
A_MOMENT_S = 0.2


@pytest.fixture
def four() -> Iterator[rankdrill.World]:
    with rankdrill.World(4) as world:
        yield world


def gather(value: Any = None, timeout: float = TIMEOUT_S) -> Any:
    """What arrives, or the error."""
    received = [None] * dist.get_world_size()
    failed = attempt(all_gather_object, received, dist.get_rank() if value is None else value, timeout=timeout)
    return failed or received


# ---------------------------------------------------------------------------------------------- ranks that die


PHASES = {
    "before it connects": (Meeting, "connect", False),
    "before its first exchange": (Line, "exchange", False),
    "before a later exchange": (Line, "exchange", True),
    "before it confirms": (GatherCall, "confirm", True),
}


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("phase", PHASES)
def test_a_rank_that_dies_in_any_phase_is_named(phase: str, rank: int) -> None:
    owner, name, connected = PHASES[phase]

    def body() -> Any:
        if connected:
            gather()
        began = time.monotonic()
        with replaced(owner, name, die, dist.get_rank() == rank):
            return gather(), gather(), time.monotonic() - began

    with rankdrill.World(4) as world:
        outcome = world.run(body, plan=to_die(rank, "kill"))
    told = survivors(outcome, lost=rank)
    for failed in (all_alike([one[0] for one in told]), all_alike([one[1] for one in told])):
        assert (failed.kind, failed.ranks) == ("PeerLost", (rank,))
        assert "process ended" in failed.text
    assert max(seconds for _, _, seconds in told) < TIMEOUT_S / 2


@pytest.mark.nightly
def test_32_ranks_of_which_one_dies() -> None:
    def body() -> Any:
        first = gather()
        began = time.monotonic()
        with replaced(Line, "exchange", die, dist.get_rank() == 21):
            return first, gather(), time.monotonic() - began

    with rankdrill.World(32) as world:
        told = survivors(world.run(body, plan=to_die(21, "kill"), deadline=120), lost=21)
    assert all_alike([first for first, _, _ in told]) == list(range(32))
    failed = all_alike([second for _, second, _ in told])
    assert (failed.kind, failed.ranks) == ("PeerLost", (21,))
    assert max(seconds for _, _, seconds in told) < TIMEOUT_S / 2


def test_the_end_of_a_child_is_not_the_end_of_its_rank(four: rankdrill.World) -> None:
    def body() -> Any:
        gather()
        child = os.fork()
        if child == 0:
            line = channel_of().line
            line.wreck()  # as if its garbage were collected
            line._pg = None
            os._exit(0)
        os.waitpid(child, 0)
        return gather()

    assert all_alike(four.run(body).unwrap()) == [0, 1, 2, 3]


def test_a_child_cannot_speak_for_its_rank(four: rankdrill.World) -> None:
    def body() -> Any:
        gather()
        group = channel_of().line._pg
        inner = getattr(group, "inner", group)
        child = os.fork()
        if child == 0:
            part = torch.zeros(4, dtype=torch.uint8)
            said = Exchange(inner, inner.count + 1, memoryview(bytes(4)), bytes_of(part), timedelta())
            os._exit(0 if said.is_completed() and said._failure else 1)
        return os.waitpid(child, 0)[1], gather()

    assert all_alike(four.run(body).unwrap()) == (0, [0, 1, 2, 3])


# ---------------------------------------------------------------------------------------------- ranks that do not


def test_a_stopped_rank_is_waited_for_and_then_given_up(four: rankdrill.World) -> None:
    def body() -> Any:
        pids: Any = gather(os.getpid())
        if dist.get_rank() == 0:
            os.kill(pids[2], signal.SIGSTOP)
        else:
            time.sleep(A_MOMENT_S)
        waking = threading.Timer(2 * SHORT_S, os.kill, (pids[2], signal.SIGCONT))
        if dist.get_rank() == 0:
            waking.start()
        began = time.monotonic()
        failed = gather(timeout=SHORT_S)
        seconds = time.monotonic() - began
        if dist.get_rank() == 0:
            waking.join()
        return failed, seconds, gather()

    told = four.run(body, deadline=60).unwrap()
    failed = all_alike([one[0] for one in told])
    assert (failed.kind, failed.ranks) == ("PeerLost", (2,))
    assert "did not come" in failed.text
    assert all(told[rank][1] < SHORT_S + 1 for rank in (0, 1, 3))
    assert all_alike([one[2] for one in told]) == [0, 1, 2, 3]


class Signalled(BaseException):
    """What a handler raised."""


@pytest.mark.parametrize("raises", [True, False])
def test_a_signal_gets_through_to_a_rank_that_waits(four: rankdrill.World, raises: bool) -> None:
    def body() -> Any:
        gather()
        seen = []

        def handle(number: int, frame: Any) -> None:
            seen.append(number)
            if raises:
                raise Signalled

        began = time.monotonic()
        if dist.get_rank() != 1:
            time.sleep(4 * A_MOMENT_S)
            return gather(), [], 0.0, gather()
        old = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, A_MOMENT_S)
        try:
            told: Any = gather()
        except Signalled:
            told = "interrupted"
        finally:
            signal.signal(signal.SIGALRM, old)
        return told, seen, time.monotonic() - began, gather()

    told = four.run(body).unwrap()
    assert told[1][1] == [signal.SIGALRM]
    assert all_alike([one[3] for one in told]) == [0, 1, 2, 3]
    if not raises:
        assert all_alike([one[0] for one in told]) == [0, 1, 2, 3]
        return
    assert told[1][0] == "interrupted"
    assert told[1][2] < 4 * A_MOMENT_S  # at once, not when the others came
    failed = all_alike([told[rank][0] for rank in (0, 2, 3)])
    assert (failed.kind, failed.ranks) == ("PeerLost", (1,))


def test_a_rank_that_hangs_up_wakes_the_others(four: rankdrill.World) -> None:
    def body() -> Any:
        gather()
        if dist.get_rank() == 2:
            time.sleep(A_MOMENT_S)
            with replaced(Page, "come", raiser(MemoryError("none left"))):
                failed = gather()
            return failed, 0.0, gather()
        began = time.monotonic()
        return gather(), time.monotonic() - began, gather()

    told = four.run(body).unwrap()
    failed = all_alike([one[0] for one in told])
    assert failed.ranks == (2,)
    assert "none left" in failed.text
    assert max(one[1] for one in told) < TIMEOUT_S / 2
    assert all_alike([one[2] for one in told]) == [0, 1, 2, 3]


# ---------------------------------------------------------------------------------------------- what is torn


def test_a_torn_part_is_everybodys_error(four: rankdrill.World) -> None:
    def body() -> Any:
        gather()
        whole = Page.come

        def torn(self: Page, number: int, mine: memoryview) -> bool:
            return whole(self, number, memoryview(bytes(mine[:100]) + bytes(mine.nbytes - 100)))

        with replaced(Page, "come", torn, dist.get_rank() == 1):
            failed = gather()
        return failed, gather()

    failed, after = all_alike(four.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("PeerLost", (1,))
    assert "damaged or not whole" in failed.text
    assert after == [0, 1, 2, 3]


def test_a_torn_tray_is_everybodys_error(four: rankdrill.World) -> None:
    def body() -> Any:
        gather()
        own_tray = Page.own_tray

        def elsewhere(self: Page, nbytes: int) -> memoryview:
            own_tray(self, nbytes)[-8:] = bytes(8)
            return memoryview(bytearray(nbytes))

        with replaced(Page, "own_tray", elsewhere, dist.get_rank() == 1):
            failed = gather(bytes(MIDDLING))
        return failed, gather()

    failed, after = all_alike(four.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("DecodeError", (1,))
    assert after == [0, 1, 2, 3]


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_has_no_memory_for_the_page_holds_nobody_up(rank: int) -> None:
    def body() -> Any:
        began = time.monotonic()
        with replaced(segment, "map_page", raiser(MemoryError("none left")), dist.get_rank() == rank):
            failed = gather()
        took = time.monotonic() - began
        return failed, took < TIMEOUT_S / 2, gather()

    with rankdrill.World(4) as world:
        failed, soon, after = all_alike(world.run(body).unwrap())
    assert failed.ranks == (rank,)
    assert "none left" in failed.text
    assert soon
    assert after == [0, 1, 2, 3]


# ---------------------------------------------------------------------------------------------- trays


def test_what_came_by_a_tray_is_nobody_elses(four: rankdrill.World) -> None:
    def body() -> Any:
        first = gather(torch.full((MIDDLING,), dist.get_rank(), dtype=torch.uint8))
        second = gather(torch.full((MIDDLING,), 10 + dist.get_rank(), dtype=torch.uint8))
        for one in first:
            one.add_(100)
        return [one.unique().tolist() for one in first], [one.unique().tolist() for one in second]

    first, second = all_alike(four.run(body).unwrap())
    assert (first, second) == ([[100], [101], [102], [103]], [[10], [11], [12], [13]])


@pytest.mark.parametrize("poor", [1, 4])
def test_without_memory_for_a_tray_it_goes_another_way(four: rankdrill.World, poor: int) -> None:
    def body() -> Any:
        gather()
        refuse = raiser(OSError(errno.ENOSPC, "No space left on device"))
        with replaced(Page, "own_tray", refuse, dist.get_rank() < poor):
            received = gather(bytes([dist.get_rank()]) * MIDDLING)
        return [(len(one), one[0]) for one in received], gather()

    expected = [(MIDDLING, rank) for rank in range(4)]
    assert all_alike(four.run(body).unwrap()) == (expected, [0, 1, 2, 3])


def test_nothing_that_is_not_trusted_is_read_from_a_tray(four: rankdrill.World) -> None:
    def body() -> Any:
        received: list[Any] = [None] * 4
        with replaced(Page, "tray", raiser(AssertionError("read"))):
            all_gather_object(received, torch.ones(MIDDLING), weights_only=True, timeout=TIMEOUT_S)
        return [one.numel() for one in received]

    assert all_alike(four.run(body).unwrap()) == [MIDDLING] * 4


# ---------------------------------------------------------------------------------------------- what it needs


def test_without_a_fence_all_use_gloo(four: rankdrill.World) -> None:
    def body() -> Any:
        with replaced(endpoint, "has_fence", lambda: False, dist.get_rank() == 1):
            return gather(), channel_of().one_host

    assert all_alike(four.run(body).unwrap()) == ([0, 1, 2, 3], False)


def test_a_group_needs_few_descriptors(four: rankdrill.World) -> None:
    def body() -> int:
        before = len(os.listdir("/proc/self/fd"))
        gather()
        return len(os.listdir("/proc/self/fd")) - before

    # The page, its doorbell, what waits for it, and one per other rank.
    assert max(four.run(body).unwrap()) <= 3 + 3


def test_two_groups_of_the_same_ranks_have_a_page_each(four: rankdrill.World) -> None:
    def body() -> Any:
        groups = [dist.new_group([0, 1, 2, 3]) for _ in range(2)]
        for number, group in enumerate(groups):
            received: list[Any] = [None] * 4
            all_gather_object(received, number, group, timeout=TIMEOUT_S)
        pages = [channel_of(group).line.page for group in groups]
        assert all(isinstance(page, Page) for page in pages)
        return len({os.fstat(page._descriptor).st_ino for page in pages if page is not None})

    assert all_alike(four.run(body).unwrap()) == 2
