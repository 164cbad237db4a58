"""The line at which a rank died, by which call, and where its threads were; the process is as it was for the next."""

from __future__ import annotations

import ctypes
import faulthandler
import inspect
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from os import _exit as leave
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.errors import RankDied, RankVictim, TemplateDied
from rankdrill.faults import Plan
from rankdrill.worlds import Outcome, RankOutcome, Status, Verdict
from tests.worlds import bodies
from tests.worlds.conftest import PATIENCE_S


def segfault() -> None:
    ctypes.string_at(0)


def raise_signal(signum: int) -> None:
    signal.raise_signal(signum)


def exit_at_once() -> None:
    os._exit(3)


def exit_by_another_name() -> None:
    leave(4)


def abort() -> None:
    os.abort()


def exit_below_python() -> None:
    ctypes.CDLL(None)._exit(5)


def here(function: Callable[..., Any]) -> str:
    """The line of `function` that does it, as a report names it: it has one."""
    line = inspect.getsourcelines(function)[1] + 1
    return f"{os.path.relpath(__file__)}:{line} in {function.__name__}"


def in_total() -> str:
    """Where `bodies.total` calls all_reduce, and where `ended_on_one` calls that."""
    lines, first = inspect.getsourcelines(bodies.total)
    line = first + next(index for index, text in enumerate(lines) if "all_reduce" in text)
    lines, first = inspect.getsourcelines(ended_on_one)
    calling = first + next(index for index, text in enumerate(lines) if "bodies.total()" in text)
    return (
        f"{os.path.relpath(bodies.__file__)}:{line} in total, called at {os.path.relpath(__file__)}:{calling} in body"
    )


def told(rank: RankOutcome) -> str:
    """What is said of `rank`; how many collectives its world had seen before does not matter."""
    return re.sub(r"#\d+", "#N", str(rank))


def ended_on_one(world: World, how: Callable[..., None], *args: Any, **options: Any) -> Outcome:
    """What comes of a run in which rank 1 calls `how` between two collectives."""

    def body() -> None:
        bodies.total()
        if dist.get_rank() == 1:
            how(*args)
        dist.barrier()

    return world.run(body, **options)


FATAL = [signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV]


@pytest.mark.parametrize("signum", FATAL, ids=lambda signum: signal.Signals(signum).name)
def test_a_fatal_signal_is_told_with_the_line_it_struck_at_and_what_the_rank_had_passed(
    two: World, signum: int
) -> None:
    outcome = ended_on_one(two, raise_signal, signum)
    assert told(outcome.ranks[1]) == (
        f"rank 1 killed by {signal.Signals(signum).name} at {here(raise_signal)}, "
        f"after collective.all_reduce #N on 'default' (float32[1] sum), at {in_total()}"
    )
    assert outcome.culprits == (1,)
    assert outcome.victims == (0,)


def test_a_crash_in_a_library_is_told_with_the_users_line_and_the_whole_stack(two: World) -> None:
    outcome = ended_on_one(two, segfault)
    crashed = outcome.ranks[1]
    assert f"killed by SIGSEGV at {here(segfault)}," in str(crashed)
    assert "in string_at" in crashed.stack
    assert crashed.stack.index("in string_at") < crashed.stack.index("in segfault") < crashed.stack.index("in body")
    assert "rankdrill/worlds" not in crashed.stack, "what every rank has below its body"
    assert (crashed.stdout, crashed.stderr) == ("", "")
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    died = caught.value.exceptions[0]
    assert isinstance(died, RankDied)
    assert died.__notes__ == [crashed.stack]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (exit_at_once, f"exited with code 3, by os._exit at {here(exit_at_once)},"),
        (exit_by_another_name, f"exited with code 4, by os._exit at {here(exit_by_another_name)},"),
        (abort, f"killed by SIGABRT, by os.abort at {here(abort)},"),
        (exit_below_python, "exited with code 5 after collective.all_reduce"),
    ],
)
def test_a_call_that_ends_the_process_is_told_with_its_line(two: World, how: Callable[[], None], words: str) -> None:
    outcome = ended_on_one(two, how)
    assert words in str(outcome.ranks[1])
    assert ("in body" in outcome.ranks[1].stack) == (how is not exit_below_python)


def test_an_exit_in_a_thread_is_told_with_the_threads_line_and_both_stacks(two: World) -> None:
    def start_one() -> None:
        threading.Thread(target=exit_at_once).start()
        time.sleep(PATIENCE_S)

    crashed = ended_on_one(two, start_one).ranks[1]
    assert f"exited with code 3, by os._exit at {here(exit_at_once)}," in str(crashed)
    assert "in start_one" in crashed.stack


def set_a_timer() -> None:
    threading.Timer(0.05, os._exit, args=(6,)).start()


def test_an_exit_by_a_timer_is_told_with_the_line_that_set_it(two: World) -> None:
    """It has no other line of the user's."""

    def set_one() -> None:
        set_a_timer()
        time.sleep(PATIENCE_S)

    crashed = ended_on_one(two, set_one).ranks[1]
    assert f"exited with code 6, by os._exit at {here(set_a_timer)}," in str(crashed)


def test_what_strikes_a_thread_without_python_is_not_put_down_to_a_line(two: World) -> None:
    def strike() -> None:
        libc = ctypes.CDLL(None)
        thread = ctypes.c_ulong()
        libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.abort, ctypes.c_void_p), None)
        time.sleep(PATIENCE_S)

    crashed = ended_on_one(two, strike).ranks[1]
    assert "killed by SIGABRT, in a thread that runs no Python, after collective.all_reduce" in str(crashed)
    assert "in strike" in crashed.stack, "what the others were doing then"


def test_sys_exit_in_a_body_is_told_with_its_line(two: World) -> None:
    def give_up() -> None:
        sys.exit("nothing to do")

    line = inspect.getsourcelines(give_up)[1] + 1
    outcome = ended_on_one(two, give_up)
    place = f"{os.path.relpath(__file__)}:{line} in give_up"
    assert outcome.ranks[1].status is Status.RAISED
    assert str(outcome.ranks[1]) == f"rank 1 raised SystemExit: nothing to do at {place}"
    assert outcome.culprits == (1,)


def test_what_was_raised_knows_its_line(two: World) -> None:
    def look_up() -> None:
        torch.zeros(1).reshape(2)

    raised = ended_on_one(two, look_up).ranks[1]
    assert raised.site is not None
    assert (raised.site.file, raised.site.function) == (__file__, "look_up")
    assert str(raised).startswith("rank 1 raised RuntimeError: shape"), "its traceback says where"


def test_steps_without_a_line_come_after_the_last_that_has_one(two: World, tmp_path: Path) -> None:
    def look_round() -> None:
        os.listdir(tmp_path)
        os.kill(os.getpid(), signal.SIGKILL)

    outcome = ended_on_one(two, look_round)
    before, _, then = told(outcome.ranks[1]).partition(", then ")
    assert before.startswith(f"rank 1 killed by SIGKILL, by os.kill at {os.path.relpath(__file__)}:")
    assert before.endswith(f", after collective.all_reduce #N on 'default' (float32[1] sum), at {in_total()}")
    assert then.startswith("file.listdir on '")
    assert then.endswith(f"{tmp_path.name}'"), "the ledger keeps the end of a long path"


def strike_the_main_thread_in(place: str) -> None:
    """Wait until the main thread has done nothing for a while but wait below a frame at `place`, and end it there."""
    main = threading.main_thread().ident
    assert main is not None
    last: list[str] = []
    while not (any(place in frame for frame in last) and last == stack_of(main)):
        last = stack_of(main)
        time.sleep(0.2)
    signal.pthread_kill(main, signal.SIGSEGV)


def stack_of(thread: int) -> list[str]:
    return traceback.format_stack(sys._current_frames()[thread])


def test_a_place_is_told_once(two: World) -> None:
    def body() -> None:
        if dist.get_rank() == 1:
            threading.Thread(target=strike_the_main_thread_in, args=("in barrier\n",)).start()
            dist.barrier()
        time.sleep(PATIENCE_S)

    line = told(two.run(body).ranks[1])
    assert line.startswith("rank 1 killed by SIGSEGV at ")
    assert line.endswith(" in body, in collective.barrier #N on 'default'")


def test_a_planned_end_is_told_as_planned_and_by_nobodys_call(two: World) -> None:
    outcome = ended_on_one(two, time.sleep, 0, plan=Plan.parse("rank 1: exit(6) before collective.barrier"))
    assert outcome.ranks[1].by_plan
    assert "rank 1 exited with code 6 in collective.barrier #N on 'default', at" in told(outcome.ranks[1])


# ------------------------------------------------------------------------------------------------ who else is there


def test_a_worker_that_crashes_is_not_the_rank(two: World) -> None:
    def fork_one_that_crashes() -> None:
        worker = multiprocessing.get_context("fork").Process(target=segfault)
        worker.start()
        worker.join(PATIENCE_S)
        assert worker.exitcode == -signal.SIGSEGV
        ctypes.CDLL(None)._exit(8)

    crashed = ended_on_one(two, fork_one_that_crashes).ranks[1]
    assert "exited with code 8 after collective.all_reduce" in str(crashed)
    assert crashed.stack == ""
    assert "Segmentation fault" in crashed.stderr, "where its parent looks"


def test_a_worker_that_exits_is_not_the_rank(two: World) -> None:
    def fork_one_that_exits() -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        ctypes.CDLL(None)._exit(8)

    assert "exited with code 8 after collective.all_reduce" in str(ended_on_one(two, fork_one_that_exits).ranks[1])


def test_a_handler_of_the_users_has_the_stacks_and_the_line_is_told_all_the_same(two: World) -> None:
    def with_a_handler() -> None:
        faulthandler.enable()
        segfault()

    crashed = ended_on_one(two, with_a_handler).ranks[1]
    assert "Fatal Python error: Segmentation fault" in crashed.stderr
    assert f"killed by SIGSEGV at {here(segfault)}," in str(crashed)


@pytest.mark.parametrize("change", [faulthandler.enable, faulthandler.disable], ids=["enabled", "disabled"])
def test_a_handler_that_a_body_has_changed_is_as_before_for_the_next(two: World, change: Callable[[], None]) -> None:
    def body() -> int:
        getattr(faulthandler, change.__name__)()
        return os.getpid()

    pids = two.run(body).unwrap()
    assert two.run(os.getpid).unwrap() == pids, "this test shows nothing: the ranks are fresh ones"
    crashed = ended_on_one(two, segfault).ranks[1]
    assert f"killed by SIGSEGV at {here(segfault)}," in str(crashed)
    assert crashed.stderr == ""


# ------------------------------------------------------------------------------------------------ the template


def test_the_death_of_the_template_is_an_error_of_the_harness_and_ranks_are_its_victims(two: World) -> None:
    def body() -> None:
        bodies.total()
        if dist.get_rank() == 0:
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(PATIENCE_S)

    outcome = two.run(body)
    words = "the process that ranks are forked from was killed by SIGKILL"
    assert outcome.harness == words
    assert (outcome.verdict, outcome.culprits, outcome.victims) == (Verdict.DIED, (), (0, 1))
    assert outcome.summary() == f"died: {words}; victims: ranks 0, 1"
    # The other one may not have noticed yet that the collective is over.
    assert str(outcome.ranks[0]).startswith("rank 0 went with the process that ranks are forked from, after")
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    first, *others = caught.value.exceptions
    assert (type(first), str(first)) == (TemplateDied, words)
    assert [type(error) for error in others] == [RankVictim, RankVictim]
    assert two.run(bodies.total).unwrap() == [1.0, 1.0]


def test_a_rank_that_failed_before_the_template_died_is_still_at_fault(two: World) -> None:
    def body() -> None:
        if dist.get_rank() == 1:
            raise KeyError("its own")
        time.sleep(2.0)  # for that to be reported
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(PATIENCE_S)

    outcome = two.run(body)
    assert (outcome.culprits, outcome.victims) == ((1,), (0,))
    assert outcome.summary() == f"died: {outcome.harness}; rank 1 raised KeyError: 'its own'; victims: rank 0"
