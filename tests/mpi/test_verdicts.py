"""What is told of ranks of MPI, on real MPICH: who is at fault and which call it was; nothing of who is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from rankdrill import World
from rankdrill.worlds import Outcome, Verdict
from tests.covering import thinned
from tests.mpi import bodies
from tests.mpi.installed import needs_mpi

pytestmark = needs_mpi
DEADLINE_S = 60.0
EARLY_S = 30.0  # generous: a hang is certain within half a second


def run(body: Callable[[], Any], n: int = 3) -> Outcome:
    with World(n, mpi=True) as world:
        return world.run(body, deadline=DEADLINE_S)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_right_gather_passes(n: int) -> None:
    all_of_it = [{"rank": rank, "size": n} for rank in range(n)]
    assert run(bodies.gathers, n).unwrap() == [all_of_it, *[None] * (n - 1)]


def test_all_kinds_of_calls_give_what_they_give() -> None:
    values = run(bodies.every_kind).unwrap()
    assert values[0] == ([0, 2], 0, [0.0, 1.0, 2.0], ("round", 2), [1, 2], 1)
    assert values[1] == ([1], 0, [0.0, 1.0, 2.0], ("round", 0), None, 1)
    assert values[2] == ([0, 2], 0, [0.0, 1.0, 2.0], ("round", 1), None, 1)


def test_who_comes_late_or_receives_slowly_is_waited_for() -> None:
    assert run(bodies.comes_late).unwrap() == [[0, 1, 2]] * 3
    assert run(bodies.receives_slowly).unwrap() == [2.0, 1.0, 1.0]


def test_messages_of_all_kinds_come() -> None:
    assert run(bodies.exchanges_in_one_call).unwrap() == [[1.0, 0.0], [2.0, 7.0], [0.0, 0.0]]
    assert run(bodies.sends_again_and_again).unwrap() == [[], [1.0, 2.0], []]


def test_a_body_may_finalize() -> None:
    assert run(bodies.finalizes).unwrap() == [True] * 3


@pytest.mark.parametrize(
    ("body", "verdict", "culprits", "says"),
    thinned(
        [
            (bodies.is_killed, Verdict.DIED, (1,), "rank 1 killed by SIGKILL"),
            (bodies.aborts, Verdict.DIED, (1,), "rank 1 exited with code 7, by MPI.Comm.Abort at"),
            (bodies.leaves_one_out, Verdict.HANG, (1,), "rank 1 leaves out mpi_allgather #1 on 'COMM_WORLD'"),
            (bodies.raises_before, Verdict.HANG, (1,), "rank 1 raised ValueError: nothing to give"),
            (bodies.cannot_pickle, Verdict.HANG, (1,), "rank 1 raised TypeError: cannot pickle"),
            (bodies.exits, Verdict.HANG, (1,), "rank 1 raised SystemExit: 3"),
            (bodies.raises_in_a_half, Verdict.HANG, (2,), "rank 2 raised KeyError: 'half'"),
            (bodies.another_root, Verdict.BROKEN, (2,), "root mismatch: rank 2 enters mpi_gather #0 on 'COMM_WORLD'"),
            (bodies.another_operator, Verdict.BROKEN, (2,), "operator mismatch: rank 2 enters mpi_allreduce #0"),
            (bodies.another_call, Verdict.BROKEN, (2,), "call ordering: rank 2 enters mpi_bcast #0"),
            (bodies.never_sends, Verdict.HANG, (1,), "rank 1 returned without sending to rank 0 on 'COMM_WORLD'"),
            (bodies.nobody_sends, Verdict.HANG, (0,), "rank 0 waits for a message from anybody"),
            (bodies.wait_for_each_other, Verdict.HANG, (0, 1), "deadlock"),
        ],
        2,
    ),
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_mistake_is_told_at_once(
    body: Callable[[], Any], verdict: Verdict, culprits: tuple[int, ...], says: str
) -> None:
    began = time.monotonic()
    outcome = run(body)
    assert (outcome.verdict, outcome.culprits) == (verdict, culprits)
    assert says in outcome.summary()
    assert time.monotonic() - began < EARLY_S
