"""A rank that dies is named, with how and where, at once; the next run works."""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import signal
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.errors import RankDied, RankVictim
from rankdrill.faults import Plan
from rankdrill.worlds import Status, Verdict
from rankdrill.worlds.processes.watching import supervise
from rankdrill.worlds.processes.watching.supervise import MOURNING_S
from tests.worlds import bodies
from tests.worlds.conftest import alive, wait_until


def by_sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def by_exit() -> None:
    os._exit(3)


def by_segv() -> None:
    ctypes.string_at(0)


def by_abort() -> None:
    os.abort()


@pytest.mark.parametrize(
    ("death", "words"),
    [
        (by_sigkill, "killed by SIGKILL"),
        (by_exit, "exited with code 3"),
        (by_segv, "killed by SIGSEGV"),
        (by_abort, "killed by SIGABRT"),
    ],
)
def test_a_death_is_named_and_the_next_run_works(four: World, death: Callable[[], None], words: str) -> None:
    def body() -> None:
        bodies.total()
        if dist.get_rank() == 2:
            death()
        dist.barrier()

    outcome = four.run(body)
    assert outcome.verdict is Verdict.DIED
    assert outcome.culprits == (2,)
    assert outcome.victims == (0, 1, 3)
    assert words in str(outcome.ranks[2])
    assert re.search(
        r"after collective\.all_reduce #\d+ on 'default' \(float32\[1\] sum\), at \S+ in total, called at \S+ in body$",
        str(outcome.ranks[2]),
    )
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    died, *victims = caught.value.exceptions
    assert isinstance(died, RankDied)
    assert died.rank == 2
    assert [type(victim) for victim in victims] == [RankVictim] * 3
    assert not four.warm
    assert four.run(bodies.total).unwrap() == [6.0] * 4


def test_a_death_inside_a_collective_names_it(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == 1:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
        if dist.get_rank() != 3:
            dist.barrier()
        time.sleep(30)

    outcome = four.run(body)
    assert outcome.ranks[1].status is Status.DIED
    assert outcome.ranks[1].step is not None
    told = r"rank 1 killed by SIGALRM in collective\.barrier #\d+ on 'default', at \S+ in body"
    assert re.fullmatch(told, str(outcome.ranks[1]))
    assert outcome.culprits == (1,), "rank 3 was only asleep, and cut short"
    assert "still running when the run was ended" in str(outcome.ranks[3])


def test_a_death_is_known_at_once(four: World, record_property: Callable[[str, object], None]) -> None:
    def body() -> None:
        dist.barrier()
        if dist.get_rank() == 0:
            print(time.monotonic_ns())
            os._exit(9)
        dist.barrier()

    noticed, over = [], []
    for _ in range(3):
        outcome = four.run(body)
        over_ns = time.monotonic_ns()
        died_ns = int(outcome.ranks[0].stdout)
        noticed.append((outcome.ranks[0].at_ns - died_ns) / 1e6)
        over.append((over_ns - died_ns) / 1e6)
    record_property("noticed after ms", noticed)
    record_property("world gone after ms", over)
    assert min(noticed) < 1000
    assert min(over) < 3000


def test_ranks_are_gone_when_the_run_is_over(four: World) -> None:
    def body() -> int:
        print(os.getpid())
        dist.barrier()
        if dist.get_rank() == 0:
            os._exit(1)
        time.sleep(30)
        return 0

    outcome = four.run(body)
    pids = [int(rank.stdout) for rank in outcome.ranks]
    assert len(set(pids)) == 4
    assert not any(map(alive, pids))


def test_survivors_of_a_planned_death_have_the_whole_deadline(two: World, tmp_path: Path) -> None:
    """What they do then is what the plan is for; MOURNING_S is all they have after a death that nobody asked for."""

    def body() -> str:
        dist.barrier()  # else the other one may still be making connections to it
        if dist.get_rank() == 0:
            (tmp_path / "never made").mkdir()
        time.sleep(3 * MOURNING_S)
        return "survived"

    outcome = two.run(body, plan=Plan.parse("rank 0: kill before file.mkdir"))
    assert outcome.ok, [str(rank) for rank in outcome.ranks]
    assert outcome.unwrap() == [None, "survived"]


def test_a_death_is_mourned_once(four: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ranks end after it: or the last one here, which needs longer, would return."""
    monkeypatch.setattr(supervise, "MOURNING_S", 2.0)

    def body() -> str:
        pids: list[Any] = [None] * 4
        dist.all_gather_object(pids, os.getpid())
        rank = dist.get_rank()
        if rank == 0:
            os._exit(1)
        wait_until(lambda: not alive(pids[0]), "rank 0 lives")
        time.sleep(1.4 * rank)
        return "done"

    outcome = four.run(body)
    assert outcome.culprits == (0,)
    assert outcome.values[1] == "done"
    assert outcome.ranks[3].cut


def test_a_segment_of_a_rank_that_died_goes_with_its_world(two: World) -> None:
    name = f"rankdrill-test-{secrets.token_hex(8)}"
    segment = Path("/dev/shm", name)

    def body() -> None:
        made = SharedMemory(name, create=True, size=1)
        resource_tracker.unregister(made._name, "shared_memory")  # type: ignore[attr-defined]  # it would remove it
        assert segment.exists()
        by_sigkill()

    try:
        outcome = two.run(lambda: body() if dist.get_rank() == 1 else dist.barrier())
        assert "killed by SIGKILL" in str(outcome.ranks[1])
        assert not segment.exists()
    finally:
        segment.unlink(missing_ok=True)


def test_children_of_a_dead_rank_die_too(two: World) -> None:
    def body() -> None:
        import subprocess

        child = subprocess.Popen(["sleep", "1000"])
        print(child.pid)
        dist.barrier()  # or the first death ends the run before the other rank has its child
        os._exit(1)

    children = [int(rank.stdout) for rank in two.run(body).ranks]
    wait_until(lambda: not any(map(alive, children)), f"children {children} of dead ranks live on")


def test_a_rank_that_dies_after_it_reported_spoils_nothing(two: World) -> None:
    def body() -> int:
        if dist.get_rank() == 1:  # by somebody who is neither its thread nor its child
            os.system(f"(sleep 0.5; kill -9 {os.getpid()}) >/dev/null 2>&1 &")
        return os.getpid()

    pids = two.run(body).unwrap()
    wait_until(lambda: not alive(pids[1]), "the rank did not die")
    wait_until(lambda: not two.warm, "a world with a dead rank counts as warm")
    assert two.run(bodies.total).unwrap() == [1.0, 1.0]


def test_a_gloo_abort_in_one_rank() -> None:
    """Sizes that differ: gloo aborts a rank, and its message is kept."""

    def body() -> None:
        dist.all_reduce(torch.ones(3 if dist.get_rank() else 3_000_000))

    with World(2, contracts=False) as two:
        outcome = two.run(body)
    assert not outcome.ok
    assert outcome.verdict in (Verdict.DIED, Verdict.ASYMMETRIC, Verdict.TOGETHER)
    if outcome.verdict is Verdict.DIED:
        assert "EnforceNotMet" in "".join(rank.stderr for rank in outcome.ranks)
