"""The backend is given the user's calls and no other, and none that does not fit what the others have posted.

Gloo counts the calls of each of its groups itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.errors import ContractBroken

DEADLINE_S = 60.0
ROUNDS = 7


def seen_by_the_backend() -> int:
    group: Any = dist.group.WORLD
    return int(group.inner._get_sequence_number_for_group())


def waited_for(work: dist.Work | None) -> None:
    assert work is not None
    work.wait()


def makes_calls_of_many_kinds() -> list[int]:
    """How many the backend was given of each kind."""
    me, size = dist.get_rank(), dist.get_world_size()
    data, parts = torch.ones(size), [torch.empty(size) for _ in range(size)]
    calls: list[Callable[[], Any]] = [
        lambda: dist.all_reduce(data),
        lambda: dist.all_gather(parts, data),
        lambda: dist.broadcast(data, 0),
        lambda: dist.all_to_all_single(torch.empty(size), data),
        lambda: dist.all_reduce(data, async_op=True).wait(),
        lambda: dist.send(data, 1) if me == 0 else dist.recv(data, 0),
        lambda: waited_for(dist.isend(data, 0) if me else dist.irecv(data, 1)),
    ]
    dist.barrier()  # what is set up at a group's first call is done
    told = []
    for call in calls:
        before = seen_by_the_backend()
        for _ in range(ROUNDS):
            call()
        told.append(seen_by_the_backend() - before)
    return told


@pytest.mark.parametrize("contracts", [True, False])
def test_of_each_kind_it_sees_as_many_as_were_made(*, contracts: bool) -> None:
    """None of ours, however ranks compare what they do."""
    with World(2, contracts=contracts) as world:
        outcome = world.run(makes_calls_of_many_kinds, deadline=DEADLINE_S)
    assert outcome.unwrap() == [[ROUNDS] * 7] * 2


def another_reduce_op() -> None:
    dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM)


def another_reduce_op_and_does_not_wait() -> None:
    op = dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM
    waited_for(dist.all_reduce(torch.ones(2), op, async_op=True))


def another_dtype() -> None:
    dist.broadcast(torch.ones(2, dtype=torch.float64 if dist.get_rank() else torch.float32), 0)


def another_call() -> None:
    dist.barrier() if dist.get_rank() else dist.all_reduce(torch.ones(2))


def more_than_is_sent() -> None:
    dist.recv(torch.empty(3), 0) if dist.get_rank() else dist.send(torch.ones(2), 1)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (another_reduce_op, FindingKind.OPERATOR),
        (another_reduce_op_and_does_not_wait, FindingKind.OPERATOR),
        (another_dtype, FindingKind.DATATYPE),
        (another_call, FindingKind.CALL_ORDERING),
        (more_than_is_sent, FindingKind.SIZE),
    ],
)
def test_what_does_not_fit_it_never_sees(
    two: World, tmp_path: Path, body: Callable[[], None], kind: FindingKind
) -> None:
    def counted(told: str) -> None:
        dist.barrier()
        before = seen_by_the_backend()
        if dist.get_rank() == 1:
            time.sleep(0.3)  # so that it is this one that comes to the other's
        try:
            body()
        except ContractBroken:
            Path(told).write_text(str(seen_by_the_backend() - before))
            raise

    outcome = two.run(counted, str(tmp_path / "told"), deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind is kind
    assert (tmp_path / "told").read_text() == "0"
