"""Ranks that die, leave, linger, come late or are in another call."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather, all_gather_list, gather_object, get_configs_parallel
from rankdrill.gathers.agreement import slots
from rankdrill.gathers.agreement.channel import LINE_VARIABLE
from rankdrill.gathers.agreement.line import Line
from tests.gathers.attempts import TIMEOUT_S, Raised, all_alike, attempt, left_in_shared_memory, replaced, wait_for
from tests.gathers.dying import die, survivors, to_die

SHORT_S = 2.0
HELD_S = 10.0  # a transfer that gloo goes on with, though its connections were closed, keeps them until its timeout


def gather(value: Any, timeout: float = TIMEOUT_S) -> list[Any]:
    return all_gather(value, timeout=timeout)


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("how", ["kill", "exit"])
@pytest.mark.parametrize("where", ["before", "transfer"])
def test_a_rank_that_dies_is_named_at_once(how: str, where: str, receiving: tuple[Any, str]) -> None:
    def body() -> Any:
        gather(0)
        dying = dist.get_rank() == 2
        if dying and where == "before":
            die()
        with replaced(*receiving, die, dying):
            began = time.monotonic()
            failed = attempt(gather, b"x" * 3_000_000)
        # The next call knows already that nobody will come.
        return failed, attempt(gather, 0), time.monotonic() - began

    with rankdrill.World(4) as world:
        outcome = world.run(body, plan=to_die(2, how))
    for failed, after, seconds in survivors(outcome, lost=2):
        assert (failed.kind, failed.ranks) == ("PeerLost", (2,))
        assert "process ended" in failed.text
        assert (after.kind, after.ranks) == ("PeerLost", (2,))
        assert seconds < TIMEOUT_S / 2  # gloo forgets a broadcast now and then, which would take all but its grace


def test_a_rank_that_dies_making_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LINE_VARIABLE, "local")

    def body() -> Any:
        gather(0)
        with (
            replaced(os, "memfd_create", die, dist.get_rank() == 1),
            get_configs_parallel(b"x" * 3_000_000, [0, 1, 2, 3], timeout=TIMEOUT_S) as seen,
        ):
            return seen

    with rankdrill.World(4) as world:
        pids = world.run(os.getpid).unwrap()
        outcome = world.run(lambda: attempt(body), plan=to_die(1, "kill"))
        for failed in survivors(outcome, lost=1):
            assert (failed.kind, failed.ranks) == ("PeerLost", (1,))
        assert world.run(lambda: len(gather(1)) + len(collect())).unwrap()[0] == 8
    assert left_in_shared_memory(pids) == []


def collect() -> list[Any]:
    with get_configs_parallel(1, [0, 1, 2, 3], timeout=TIMEOUT_S) as seen:
        return seen


@pytest.mark.parametrize("connected", [False, True])
def test_a_late_rank_learns_it_and_is_welcome_again(
    world: rankdrill.World, tmp_path: pathlib.Path, connected: bool
) -> None:
    def body() -> Any:
        seen = []
        if connected:
            gather(0)
        for turn in range(3):
            if turn == 0 and dist.get_rank() == 3:
                wait_for([tmp_path / str(rank) for rank in range(3)])
            seen.append(attempt(gather, (dist.get_rank(), turn), SHORT_S if turn == 0 else TIMEOUT_S))
            (tmp_path / str(dist.get_rank())).touch()  # has given up
        return seen

    late, *after = all_alike(world.run(body).unwrap())
    assert (late.kind, late.ranks) == ("PeerLost", (3,))
    assert "did not come" in late.text
    # What rank 3 brought too late never appears.
    assert after == [[(rank, turn) for rank in range(4)] for turn in (1, 2)]


def test_a_rank_that_raises_before_calling_and_goes_on(world: rankdrill.World) -> None:
    def body() -> Any:
        failed = None
        try:
            if dist.get_rank() == 1:
                raise ValueError("before the gather")
            failed = attempt(gather, 0, SHORT_S)
        except ValueError:
            pass
        dist.barrier()
        return failed, attempt(gather, dist.get_rank())

    got = world.run(body).unwrap()
    assert got[1][0] is None
    failed = all_alike([got[rank][0] for rank in (0, 2, 3)])
    assert (failed.kind, failed.ranks) == ("PeerLost", (1,))
    assert all_alike([after for _, after in got]) == [0, 1, 2, 3]


def test_ranks_in_different_paths(world: rankdrill.World) -> None:
    def body() -> Any:
        by_list = dist.get_rank() == 0
        failed = attempt(lambda: all_gather_list(1, timeout=TIMEOUT_S) if by_list else gather(1))
        return failed, attempt(gather, dist.get_rank())

    got = world.run(body).unwrap()
    for failed, after in got:
        assert (failed.kind, failed.ranks) == ("Desynchronized", (0,))
        assert failed.text.count("test_lost_ranks.py:") >= 2
        assert "all_gather_list" in failed.text
        assert after == [0, 1, 2, 3]


def test_a_rank_that_skips_a_call_never_swaps_payloads(world: rankdrill.World) -> None:
    def body() -> Any:
        first = None
        if dist.get_rank() != 2:
            first = attempt(gather, "first")
        second = attempt(gather, "second", SHORT_S)
        return first, second

    got = world.run(body).unwrap()
    for first, second in got:
        assert first is None or isinstance(first, Raised)
        assert isinstance(second, Raised) or second == ["second"] * 4
    assert got[0][0].kind == "Desynchronized"
    assert got[0][0].ranks == (2,)


def test_branches_of_one_if_are_one_call(world: rankdrill.World) -> None:
    def body() -> Any:
        return attempt(gather, "zero") if dist.get_rank() == 0 else attempt(gather, "other")

    assert all_alike(world.run(body).unwrap()) == ["zero", "other", "other", "other"]


def test_a_rank_of_another_version(world: rankdrill.World) -> None:
    def body() -> Any:
        gather(0)
        with replaced(slots, "VERSION", 99, dist.get_rank() == 2):
            failed = attempt(gather, 1)
        return failed, attempt(gather, dist.get_rank())

    failed, after = all_alike(world.run(body).unwrap())
    assert failed.kind == "PeerLost"
    assert "no slot of version" in failed.text
    assert after == [0, 1, 2, 3]


def test_a_wait_for_a_payload_ends_with_the_time_of_this_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """And not with that of the call which connected the ranks."""
    monkeypatch.setenv(LINE_VARIABLE, "gloo")
    over = tmp_path / "over"

    def hold_back(*args: Any, **kwargs: Any) -> None:
        wait_for([over])

    def body() -> Any:
        received = [None, None] if dist.get_rank() == 0 else None
        gather_object(b"x" * 100_000, received, timeout=10 * TIMEOUT_S)
        began = time.monotonic()
        with replaced(Line, "send", hold_back, dist.get_rank() == 1):
            failed = attempt(gather_object, b"x" * 100_000, received, timeout=SHORT_S)
        over.touch()
        return failed, time.monotonic() - began

    with rankdrill.World(2) as world:
        (failed, seconds), (told, _) = world.run(body, deadline=3 * TIMEOUT_S).unwrap()
    assert (failed.kind, failed.ranks) == (told.kind, told.ranks) == ("PeerLost", (1,))
    assert seconds < TIMEOUT_S / 2


class Interrupting:
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt("by the user")


def test_an_interrupt_stays_one_and_lets_the_others_go(world: rankdrill.World) -> None:
    def body() -> Any:
        gather(0)
        try:
            failed = attempt(gather, Interrupting() if dist.get_rank() == 1 else 1)
        except KeyboardInterrupt:
            failed = "interrupted"
        return failed, attempt(gather, dist.get_rank())

    got = world.run(body).unwrap()
    assert got[1][0] == "interrupted"
    lost = all_alike([got[rank][0] for rank in (0, 2, 3)])
    assert (lost.kind, lost.ranks) == ("PeerLost", (1,))
    assert all_alike([after for _, after in got]) == [0, 1, 2, 3]


def test_the_callers_group_survives_a_timeout(world: rankdrill.World) -> None:
    def body() -> Any:
        if dist.get_rank() == 0:
            time.sleep(SHORT_S)
        failed = attempt(gather, 1, 1.0)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return failed.kind, tensor.item()

    assert all_alike(world.run(body).unwrap()) == ("PeerLost", 4.0)


def is_so_on_any_rank(condition: bool) -> bool:
    seen = torch.tensor(int(condition))
    dist.all_reduce(seen, dist.ReduceOp.MAX)
    return bool(seen)


def test_no_descriptors_are_left(world: rankdrill.World, receiving: tuple[Any, str]) -> None:
    def body() -> bool:
        def fail() -> None:
            with replaced(*receiving, lambda *_, **__: 1 / 0, dist.get_rank() == 0):
                attempt(gather, b"x" * 3_000_000, HELD_S)
            gather(0, HELD_S)

        fail()
        before = open_fds()
        for _ in range(5):
            fail()
        for _ in range(2 * int(HELD_S)):
            if not is_so_on_any_rank(open_fds() > before + 1):
                return True
            time.sleep(1.0)
            fail()  # which lets go of what is over by now
        return False

    assert all_alike(world.run(body, deadline=4 * TIMEOUT_S).unwrap()) is True


def test_a_gather_inside_a_gather_is_refused(world: rankdrill.World) -> None:
    class Nested:
        def __reduce__(self) -> Any:
            return list, (gather(1),)

    failed = all_alike(world.run(lambda: attempt(gather, Nested() if dist.get_rank() == 0 else 0)).unwrap())
    assert (failed.kind, failed.ranks) == ("EncodeError", (0,))
    assert "under way" in failed.text
