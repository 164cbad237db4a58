"""Runs that would never end: who is waited for, who waits, and how soon it is said."""

from __future__ import annotations

import ctypes
import io
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import Progress

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.errors import RankLeft, RankStuck, RankVictim
from rankdrill.faults import Plan
from rankdrill.worlds import Outcome, Status, Verdict
from tests.worlds import bodies

LONG = 60.0  # a deadline that a test which waits for it would not be forgiven
SOON = 1.5  # a deadline that a test may wait for
EARLY = 20.0  # well before it, on the busiest machine


def errors_of(outcome: Outcome) -> tuple[BaseException, ...]:
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    return caught.value.exceptions


def test_a_rank_asleep_while_others_wait(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == 3:
            time.sleep(1000)
        dist.barrier()

    outcome = four.run(body, deadline=0.7)
    assert outcome.verdict is Verdict.HANG
    assert outcome.culprits == (3,)
    assert outcome.victims == (0, 1, 2)
    stuck, *victims = errors_of(outcome)
    assert isinstance(stuck, RankStuck)
    assert "rank 3 was still running at the deadline" in str(stuck)
    assert "in body" in "".join(stuck.__notes__), "its stack says where"
    told = r"rank 0 waits in collective\.barrier #\d+ on 'default' for rank 3, at \S+ in body"
    assert re.fullmatch(told, str(victims[0]))


def test_a_rank_that_holds_the_gil_shows_its_stack(two: World) -> None:
    def body() -> None:
        if dist.get_rank() == 0:
            ctypes.PyDLL(None).sleep(1000)
        dist.barrier()

    outcome = two.run(body, deadline=0.7)
    assert (outcome.culprits, outcome.victims) == ((0,), (1,))
    assert "in body" in outcome.ranks[0].stack


def test_a_stopped_rank(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.barrier()

    outcome = four.run(body, deadline=0.7)
    assert outcome.verdict is Verdict.HANG
    assert outcome.culprits == (1,)
    assert outcome.victims == (0, 2, 3)
    assert four.run(bodies.total).unwrap() == [6.0] * 4


def test_a_failed_assertion_while_others_wait_ends_the_run_at_once(four: World) -> None:
    def body() -> None:
        assert dist.get_rank() != 1
        dist.barrier()

    outcome = four.run(body, deadline=LONG)
    assert outcome.elapsed < EARLY
    assert outcome.verdict is Verdict.HANG
    assert (outcome.culprits, outcome.victims) == ((1,), (0, 2, 3))
    assert isinstance(errors_of(outcome)[0], AssertionError)


def test_a_rank_whose_call_is_refused_has_not_reached_it(four: World) -> None:
    """What it gave is wrong by itself: the backend says so before it begins, and the others wait for it in vain."""

    def body() -> None:
        dist.barrier()
        parts = [torch.empty(2) for _ in range(dist.get_world_size() - (dist.get_rank() == 3))]
        dist.all_gather(parts, torch.ones(2))

    outcome = four.run(body, deadline=LONG)
    assert outcome.verdict is Verdict.HANG
    assert (outcome.culprits, outcome.victims) == ((3,), (0, 1, 2))
    assert outcome.elapsed < EARLY


def test_a_rank_that_leaves_without_the_collective(four: World) -> None:
    def body() -> str:
        if dist.get_rank() != 2:
            dist.all_reduce(torch.ones(2))
        return "done"

    outcome = four.run(body, deadline=LONG)
    assert outcome.elapsed < EARLY
    assert (outcome.culprits, outcome.victims) == ((2,), (0, 1, 3))
    left, *victims = errors_of(outcome)
    assert isinstance(left, RankLeft)
    assert re.fullmatch(
        r"missing call: rank 2 leaves out all_reduce #(\d+) on 'default', at (\S+ in body), "
        r"and goes past it by `if dist\.get_rank\(\) != 2`, at \S+ in body; "
        r"ranks 0, 1, 3 wait in all_reduce #\1 on 'default', at \2; "
        r"rank 2 returned without a collective on 'default'",
        str(left),
    )
    assert [type(error) for error in victims] == [RankVictim] * 3
    assert outcome.values[2] == "done"


def test_two_groups_entered_in_opposite_order(four: World) -> None:
    def body() -> None:
        left, right = dist.new_group([0, 1]), dist.new_group([0, 1])
        if dist.get_rank() < 2:
            for group in (left, right) if dist.get_rank() == 0 else (right, left):
                dist.barrier(group=group)

    outcome = four.run(body, deadline=LONG)
    assert outcome.elapsed < EARLY
    assert outcome.verdict is Verdict.HANG
    assert sorted(outcome.culprits) == [0, 1]
    assert outcome.victims == ()
    assert "for rank 1" in str(outcome.ranks[0])
    assert "for rank 0" in str(outcome.ranks[1])
    assert outcome.ranks[3].status is Status.RETURNED


def test_a_receive_from_a_rank_that_left(two: World) -> None:
    def body() -> None:
        if dist.get_rank() == 0:
            dist.recv(torch.empty(1), src=1)

    outcome = two.run(body, deadline=LONG)
    assert outcome.elapsed < EARLY
    assert (outcome.culprits, outcome.victims) == ((1,), (0,))
    assert "waits in collective.recv" in str(outcome.ranks[0])
    assert "for rank 1" in str(outcome.ranks[0])


def test_an_older_wait_behind_a_newer_issue_is_seen(two: World) -> None:
    def body() -> None:
        if dist.get_rank() == 1:
            time.sleep(1000)
        first = dist.all_reduce(torch.ones(1), async_op=True)
        dist.all_reduce(torch.ones(1), async_op=True)
        first.wait()

    outcome = two.run(body, deadline=0.7)
    assert (outcome.culprits, outcome.victims) == ((1,), (0,))
    assert outcome.ranks[0].wait is not None
    reached = max(record.step.sequence for record in outcome.ranks[0].ledger)
    assert outcome.ranks[0].wait.record.step.sequence == reached - 1, "it waits for the first of the two"


# ------------------------------------------------------------------------------ what is not a hang


def test_a_wait_that_gives_up_by_itself_is_let(two: World) -> None:
    def body() -> str:
        group = dist.new_group(timeout=timedelta(seconds=2))
        if dist.get_rank() == 0:
            with pytest.raises(RuntimeError, match=r"(?i)time"):
                dist.barrier(group=group)
        return "caught"

    assert two.run(body, deadline=LONG).unwrap() == ["caught", "caught"]
    assert not two.warm, "a connection on which a collective failed is not for the next test"


@pytest.mark.parametrize("timeout_s", [0.2, 1.0])
@pytest.mark.parametrize("watched", [True, False])
def test_a_monitored_barrier_gives_up_by_itself(timeout_s: float, *, watched: bool) -> None:
    def body() -> str:
        if dist.get_rank() == 0:
            with pytest.raises(RuntimeError, match="Rank 1 failed to pass monitoredBarrier"):
                dist.monitored_barrier(timeout=timedelta(seconds=timeout_s))
        return "done"

    with World(2, contracts=watched) as world:
        assert world.run(body, deadline=LONG).unwrap() == ["done", "done"]


def test_a_slow_rank_is_not_a_lost_one(four: World) -> None:
    def body() -> float:
        group = dist.new_group([0, 1, 2])
        tensor = torch.ones(1)
        if dist.get_rank() < 3:  # the other one returns, so that the rest are looked at often
            time.sleep(1.0 if dist.get_rank() == 0 else 0)
            dist.all_reduce(tensor, group=group)
        return float(tensor)

    assert four.run(body).unwrap() == [3.0, 3.0, 3.0, 1.0]


def test_those_that_wait_for_ever_do_not_cut_short_one_that_soon_returns(four: World) -> None:
    def body() -> str:
        if dist.get_rank() < 2:
            dist.barrier()
        if dist.get_rank() == 2:
            time.sleep(0.4)
        return "done"

    outcome = four.run(body, deadline=LONG)
    assert outcome.elapsed < EARLY
    assert outcome.values == [None, None, "done", "done"]
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, ()), "two against two"
    assert [side.ranks for side in finding.sides] == [(2, 3), (2, 3), (0, 1), (2, 3)]
    assert sorted(outcome.culprits) == [0, 1, 2, 3]


def computes_for_long() -> None:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        sum(range(1000))  # computes


def test_one_that_cannot_change_it_may_go_on_computing(four: World) -> None:
    def message() -> None:
        if dist.get_rank() == 0:
            dist.recv(torch.ones(1), src=1)
        elif dist.get_rank() > 1:
            computes_for_long()

    outcome = four.run(message, deadline=LONG)
    assert outcome.elapsed < EARLY
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (1,))
    assert set(outcome.victims) == {0, 2, 3}
    assert re.search(r"still running when the run was ended, at .* in computes_for_long, ", str(outcome.ranks[3]))

    outcome = four.run(in_a_group, deadline=LONG)
    assert outcome.elapsed < EARLY
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (0,))


def between_two() -> None:
    """Who computes is no member: it can show nothing of whether one call is too many, or one too few."""
    pair = dist.new_group([2, 3])
    if dist.get_rank() == 0:
        computes_for_long()
    elif dist.get_rank() == 2:
        dist.barrier(group=pair)


def test_who_is_no_member_is_not_waited_for(four: World) -> None:
    outcome = four.run(between_two, deadline=LONG)
    assert outcome.elapsed < EARLY
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, ())
    assert {side.ranks for side in finding.sides} == {(2,), (3,)}


def one_waits_for_two_that_left(seconds: float) -> None:
    if dist.get_rank() == 0:
        time.sleep(seconds)
    elif dist.get_rank() == 2:
        dist.barrier()


def test_who_may_still_come_is_waited_for_a_while_to_show_who_is_at_fault(four: World) -> None:
    outcome = four.run(one_waits_for_two_that_left, 0.4, deadline=LONG)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.EXTRA, (2,))
    assert outcome.elapsed < EARLY


def test_after_that_those_that_wait_and_those_that_left_are_told_and_nobody_is_accused(four: World) -> None:
    """It may be one of those that come to the call: two against two."""
    outcome = four.run(one_waits_for_two_that_left, LONG, deadline=LONG)
    assert outcome.elapsed < EARLY
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, ())
    assert [side.ranks for side in finding.sides] == [(1, 3), (1, 3), (2,), (1, 3)]
    assert outcome.ranks[0].rank in outcome.victims


def in_a_group() -> None:
    """Two wait for a third that has returned; the last rank computes."""
    group = dist.new_group([0, 1, 2])
    if dist.get_rank() == 3:
        computes_for_long()
    elif dist.get_rank():
        dist.barrier(group=group)


def test_a_second_thread_may_still_come(two: World) -> None:
    """Rank 0's main thread waits for rank 1, rank 1 for a thread of rank 0 that has taken no step yet."""

    def body() -> float:
        one, other = dist.new_group(), dist.new_group()
        tensor = torch.ones(1)

        def late() -> None:
            time.sleep(2.5)
            dist.all_reduce(tensor, group=other)

        thread = threading.Thread(target=late)
        if dist.get_rank() == 0:
            thread.start()
            dist.barrier(group=one)
            thread.join()
        else:
            dist.all_reduce(tensor, group=other)
            dist.barrier(group=one)
        return float(tensor)

    assert two.run(body, deadline=LONG).unwrap() == [2.0, 2.0]


@pytest.mark.parametrize("pause", [None, 1000.0], ids=["as long as it takes", "for a time"])
def test_a_second_thread_that_waits_for_the_main_one_will_not(two: World, pause: float | None) -> None:
    """One of a pool that has nothing to do, one that waits for an event, one that waits for the second."""

    def body() -> None:
        over = threading.Event()
        waiting = threading.Thread(target=over.wait, args=(pause,), daemon=True)
        waiting.start()
        joining = threading.Thread(target=lambda: waiting.join(), daemon=True)  # it says for how long
        joining.start()
        with ThreadPoolExecutor(2) as pool:
            if dist.get_rank() == 1:
                over.set()
                pool.submit(open, "/no such file").result()
            pool.submit(dist.all_reduce, torch.ones(1)).result()

    outcome = two.run(body, deadline=LONG)
    assert outcome.culprits == (1,)
    assert isinstance(outcome.ranks[1].error, FileNotFoundError)
    assert outcome.elapsed < EARLY


def beats_for_ever() -> None:
    threading.Thread(target=_beat, daemon=True).start()


def _beat() -> None:
    while True:
        time.sleep(0.02)


def shows_progress() -> None:
    """A thread of the library's own, a daemon, refreshes it a few times a second; nobody comes to stop that."""
    Progress(console=Console(file=io.StringIO(), force_terminal=True)).start()


@pytest.mark.parametrize("on", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("beside", [beats_for_ever, shows_progress])
def test_who_waits_for_one_that_has_ended_waits_for_ever_whatever_else_it_does(
    two: World, beside: Callable[[], None], on: tuple[int, ...]
) -> None:
    def body() -> None:
        dist.barrier()
        if dist.get_rank() in on:
            beside()
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))

    outcome = two.run(body, deadline=LONG)
    assert [finding.kind for finding in outcome.findings] == [FindingKind.EXTRA]
    assert outcome.elapsed < EARLY


def test_a_library_that_refreshes_its_bar_makes_no_call(two: World) -> None:
    """Each waits for the other: nobody has ended."""

    def body() -> None:
        shows_progress()
        one, other = dist.new_group(), dist.new_group()
        for group in (one, other) if dist.get_rank() else (other, one):
            dist.barrier(group)

    outcome = two.run(body, deadline=LONG)
    assert [finding.kind for finding in outcome.findings] == [FindingKind.DEADLOCK]
    assert outcome.elapsed < EARLY


def test_a_thread_that_outlives_its_body_may_still_come(two: World) -> None:
    """An interpreter would wait for it, too."""

    def body() -> None:
        def late() -> None:
            time.sleep(2.5)
            dist.all_reduce(torch.ones(1))

        if dist.get_rank() == 1:
            threading.Thread(target=late).start()
        else:
            dist.all_reduce(torch.ones(1))

    two.run(body, deadline=LONG).unwrap()


def test_a_long_transfer_is_no_hang(four: World) -> None:
    """A cycle of waits by the book, but gloo needs not all members to have come to go on with a broadcast."""

    def body() -> float:
        group = dist.new_group([0, 1, 2])
        if dist.get_rank() == 3:
            return 0.0  # now the others are looked at more often
        tensor = torch.zeros(150_000_000)
        if dist.get_rank() == 2:
            dist.recv(torch.empty(1), src=1)
        dist.broadcast(tensor, src=0, group=group)
        if dist.get_rank() == 1:
            dist.send(torch.ones(1), dst=2)
        return float(tensor[0])

    assert four.run(body, deadline=LONG).unwrap() == [0.0] * 4


def test_a_long_message_both_halves_begun(four: World) -> None:
    def body() -> None:
        group = dist.new_group([0, 1])
        if dist.get_rank() > 1:
            return
        tensor = torch.ones(150_000_000)
        if dist.get_rank() == 0:
            work = dist.isend(tensor, dst=1)
            dist.barrier(group=group)
            assert work is not None
            work.wait()
        else:
            dist.recv(tensor, src=0)
            dist.barrier(group=group)

    four.run(body, deadline=LONG).unwrap()


def test_a_group_whose_introduction_was_overwritten(four: World) -> None:
    """More steps than a ledger holds, in a group that rank 3 is no member of."""

    def body() -> float:
        group = dist.new_group([0, 1, 2])
        tensor = torch.zeros(1)
        if dist.get_rank() < 3:
            for _ in range(4500):
                dist.broadcast(tensor, src=0, group=group)
            if dist.get_rank() == 0:
                time.sleep(1.0)
            dist.all_reduce(tensor, group=group)
        return float(tensor)

    assert four.run(body, deadline=LONG).unwrap() == [0.0] * 4


@pytest.mark.parametrize("strike", ["kill", "exit"])
def test_a_rank_that_a_plan_ends_before_a_collective_has_not_reached_it(four: World, strike: str) -> None:
    """The others' connections break, but for one, which waits for a rank that has raised."""

    def body() -> None:
        for _ in range(3):
            dist.all_reduce(torch.ones(1 << 16))

    began = time.monotonic()
    outcome = four.run(body, plan=Plan.parse(f"rank 1: {strike} before collective.all_reduce #2"), deadline=LONG)
    assert outcome.ranks[1].status is Status.DIED
    assert time.monotonic() - began < EARLY


def _reduce() -> None:
    dist.reduce(torch.ones(3), 0)


def _all_reduce() -> None:
    dist.all_reduce(torch.ones(3))


def _gather_objects() -> None:
    dist.all_gather_object([None, None], "a")


def _broadcast() -> None:
    dist.broadcast(torch.ones(3), 1)


@pytest.mark.parametrize(
    ("body", "bent"),
    [
        (_reduce, "rank 0: wrong_shape(1) at collective.reduce"),
        (_all_reduce, "rank 0: wrong_shape(1) at collective.all_reduce"),
        (_broadcast, "rank 0: wrong_root at collective.broadcast"),
        (_gather_objects, "rank 0: swap at collective.all_gather"),
        (_gather_objects, "rank 0: skip at collective.all_gather"),
    ],
)
def test_what_a_plan_bent_so_that_it_cannot_end_is_not_waited_for(
    two: World, body: Callable[[], None], bent: str
) -> None:
    """Of plans that are drawn many do this, and each would cost the deadline, for each example on the way to the least.

    The rank that has less to give may be through, and have ended.
    """
    began = time.monotonic()
    outcome = two.run(body, plan=Plan.parse(bent), deadline=LONG)
    assert any(rank.status is Status.STUCK for rank in outcome.ranks)
    assert time.monotonic() - began < LONG / 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rank_that_a_plan_keeps_in_its_call_goes_on(two: World, when: str) -> None:
    """The root has ended meanwhile."""
    plan = Plan.parse(f"rank 0: delay(1) {when} collective.broadcast")
    assert two.run(_broadcast, plan=plan, deadline=LONG).unwrap() == [None, None]
