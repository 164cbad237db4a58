"""All are in one call, which does not end: what one of them gave up before lies in its way."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

DEADLINE_S, EARLY_S = 120.0, 80.0


def drops_its_receive(rank: RankContext) -> None:
    row = torch.zeros(4)
    if rank.index == 0:
        for work in [dist.isend(row, dst=other, tag=40) for other in range(1, rank.world_size)]:
            assert work is not None
            work.wait()
    elif rank.index == 1:
        dist.irecv(row, src=0, tag=40)  # drops
    else:
        dist.recv(row, src=0, tag=40)
    dist.barrier()


def test_a_call_that_a_dropped_receive_stalls_is_told_before_the_deadline(fresh: World) -> None:
    outcome = run(fresh, drops_its_receive, deadline=DEADLINE_S)
    (found,) = outcome.findings
    assert (found.kind, found.culprits) == (FindingKind.REQUEST_LEAK, (1,))
    assert marks(found)[0] == {"drops"}
    assert outcome.elapsed < EARLY_S


def drops_one_that_is_there(rank: RankContext) -> None:
    """Nothing is in the way of what follows, however late one of them comes to it."""
    row = torch.zeros(4)
    if rank.index == 0:
        dist.send(row, dst=1)
    elif rank.index == 1:
        work = dist.irecv(row, src=0)
        assert work is not None
        work.wait()
        del work
    if rank.index == 2:
        time.sleep(2.5)
    dist.barrier()


def test_who_comes_late_stalls_nothing(fresh: World) -> None:
    assert run(fresh, drops_one_that_is_there, deadline=DEADLINE_S).ok
