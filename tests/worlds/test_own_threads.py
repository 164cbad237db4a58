"""Two threads of a rank on one group: told though it went well, but for threads that wait for each other."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.diagnosis.calls.own_threads import unordered_threads
from rankdrill.worlds import Outcome


def report_beside(ranks: tuple[int, ...], seconds: float) -> None:
    seen = torch.ones(1)

    def report() -> None:
        dist.all_reduce(seen)

    if dist.get_rank() in ranks:
        reporter = threading.Thread(target=report)
        reporter.start()
        time.sleep(seconds)
        dist.all_reduce(torch.ones(1))
        reporter.join()
    else:
        dist.all_reduce(seen)
        dist.all_reduce(torch.ones(1))


def found(outcome: Outcome) -> str:
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.CALL_ORDERING
    return str(finding)


def test_a_rank_with_a_thread_beside_is_at_fault_though_it_went_well(two: World) -> None:
    outcome = two.run(report_beside, (1,), 0.3, deadline=30)
    assert outcome.culprits == (1,)
    told, first = found(outcome), report_beside.__code__.co_firstlineno
    at = "at tests/worlds/test_own_threads.py"
    assert f"rank 1 issues all_reduce on 'default' in a thread, {at}:{first + 4} in report" in told
    assert f"rank 1 goes on to all_reduce, and nothing orders the two, {at}:{first + 10}" in told


def test_ranks_that_do_the_same_are_told_together(four: World) -> None:
    outcome = four.run(report_beside, (0, 1, 2, 3), 0.0, deadline=30)
    assert outcome.culprits == (0, 1, 2, 3)
    assert "ranks 0, 1, 2, 3 issue all_reduce on 'default' in a thread" in found(outcome)


def test_what_is_waited_for_before_the_next_call_is_right(two: World) -> None:
    def body() -> int:
        with ThreadPoolExecutor(1) as pool:
            for _ in range(3):
                pool.submit(dist.all_reduce, torch.ones(1)).result()
                dist.all_reduce(torch.ones(1))
        return dist.get_rank()

    assert two.run(body, deadline=30).unwrap() == [0, 1]


def test_threads_with_a_group_each_are_right(two: World) -> None:
    def body() -> int:
        own = dist.new_group()

        def report() -> None:
            for _ in range(3):
                dist.all_reduce(torch.ones(1), group=own)

        reporter = threading.Thread(target=report)
        reporter.start()
        for _ in range(3):
            dist.all_reduce(torch.ones(1))
        reporter.join()
        dist.destroy_process_group(own)
        return dist.get_rank()

    assert two.run(body, deadline=30).unwrap() == [0, 1]


def test_a_pool_that_is_given_the_collective_itself_is_a_thread_beside(two: World) -> None:
    def body() -> None:
        pool = ThreadPoolExecutor(1)
        reported = pool.submit(dist.all_reduce, torch.ones(1))
        time.sleep(0.1)
        dist.all_reduce(torch.ones(1))
        reported.result()

    outcome = two.run(body, deadline=30)
    assert outcome.culprits == (0, 1)
    assert "in a thread" in found(outcome)


def test_a_thread_that_goes_on_into_the_next_rounds_of_the_loop_is_beside(two: World) -> None:
    """However it comes out: which of two calls meets which on another rank is chance."""

    def body() -> None:
        reporter: threading.Thread | None = None
        for step in range(12):
            dist.all_reduce(torch.ones(64))
            if step % 4 == 0:
                if reporter is not None:
                    reporter.join()
                names = [None, None]
                reporter = threading.Thread(target=dist.all_gather_object, args=(names, step), daemon=True)
                reporter.start()
        if reporter is not None:
            reporter.join()

    for _ in range(3):
        outcome = two.run(body, deadline=5)
        assert not outcome.ok
        assert {finding.kind for finding in outcome.findings} == {FindingKind.CALL_ORDERING}, outcome.summary()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_thread_of_the_last_round_is_right(two: World, leaves: bool) -> None:
    def body() -> int:
        report: threading.Thread | None = None
        for step in range(3):
            dist.all_reduce(torch.ones(1))
            if step == (1 if leaves else 2):
                report = threading.Thread(target=dist.all_reduce, args=(torch.ones(1),))
                report.start()
                if leaves:
                    break
        assert report is not None
        report.join()
        return dist.get_rank()

    assert two.run(body, deadline=30).unwrap() == [0, 1]


class Remote:
    """Answers to any name, as what stands for an object elsewhere does."""

    def __init__(self) -> None:
        self.called = 0

    def __getattr__(self, name: str) -> Remote:
        return Remote()

    def __call__(self, *args: object) -> None:
        self.called += 1


def test_a_thread_may_run_what_answers_to_any_name(two: World) -> None:
    def body() -> int:
        remote = Remote()
        for target in (remote, remote.run):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        return remote.called

    assert two.run(body, deadline=30).unwrap() == [1, 1]


def test_who_has_come_to_one_of_the_two_as_yet_is_told_with_the_others(two: World) -> None:
    """As where gloo ends the run when the two have met: rank 1 had no time for its second call."""
    outcome = two.run(report_beside, (0, 1), 0.1, deadline=30)
    whole, cut = (outcome.ranks[rank].ledger for rank in (0, 1))
    second = [record.index for record in cut.records if record.step.op == "all_reduce"][1]
    views = {0: whole, 1: replace(cut, raw=cut.raw[: second - cut.first])}
    finding = unordered_threads(views, met=True)
    assert finding is not None
    assert finding.culprits == (0, 1)
    assert [side.ranks for side in finding.sides] == [(0, 1), (0,)]
    alone = unordered_threads(views)
    assert alone is not None
    assert alone.culprits == (0,), "of one that went well nobody says what it would have done"
