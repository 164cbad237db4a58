"""Calls that go on, on a device, when they have returned to Python: what shows of one that the others do not make.

There is no GPU here. Torch's ``fake`` backend returns at once, as NCCL does, and moves nothing; whoever waits for the
device is a loop that goes on for ever, as ``Tensor.item()`` does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from rankdrill import Plan, World
from rankdrill.boundary import batches_seam, torch_seam
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Status
from tests.torch_can import Can, needs

SOON_S = 15.0  # a bound that is far from any deadline here
DEADLINE_S = 60.0


def begin() -> tuple[int, torch.Tensor]:
    """The default group, on a backend that is taken for a device's."""
    torch_seam.goes_on_after_calls = lambda group: True
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    return rank, torch.ones(4)


def waits_for_the_device() -> None:
    while True:
        time.sleep(0.001)


def skips_one() -> None:
    rank, x = begin()
    dist.all_reduce(x)
    if rank != 1:
        dist.all_reduce(x)  # missing
        waits_for_the_device()


def skips_one_silently() -> None:
    rank, x = begin()
    dist.all_reduce(x)
    if rank != 1:
        dist.all_reduce(x)  # missing


def raises() -> None:
    rank, x = begin()
    if rank == 1:
        raise ValueError("a bad batch")
    dist.all_reduce(x)
    waits_for_the_device()


def all_reduces_once() -> None:
    _, x = begin()
    dist.all_reduce(x)
    waits_for_the_device()


def receives_nothing() -> None:
    rank, x = begin()
    if rank == 0:
        dist.recv(x, 1)
        waits_for_the_device()


def receives_once_more(others_end: bool) -> None:
    """Rank 1 receives more than it is sent, which its device comes to before the collective that all come to."""
    rank, x = begin()
    if rank == 0:
        for _ in range(2):
            dist.send(x, 1)
    elif rank == 1:
        for _ in range(3):
            dist.recv(x, 0)  # once more
    if others_end:
        dist.all_reduce(x)
        if rank == 1:
            waits_for_the_device()
    else:
        replace_method("barrier", lambda *args, **kwargs: waits_for_the_device())  # as NCCL's does, on the host
        dist.barrier()


def both_receive_first() -> None:
    rank, x = begin()
    for _ in range(3):
        if rank == 0:
            dist.send(x, 1)
            dist.recv(x, 1)
        elif rank == 1:
            dist.recv(x, 0)
            dist.send(x, 0)
    if rank < 2:
        dist.recv(x, 1 - rank)  # first
        dist.send(x, 1 - rank)
    waits_for_the_device()


def replace_method(name: str, by: Callable[..., Any]) -> None:
    setattr(dist.ProcessGroup, name, by)


def connects_slowly() -> float:
    """Both are in a send, as while NCCL connects two ranks at their first message, and then go on."""
    rank, x = begin()
    real = dist.ProcessGroup.send

    def send(*args: Any, **kwargs: Any) -> Any:
        time.sleep(1.5)
        return real(*args, **kwargs)

    replace_method("send", send)
    if rank < 2:
        dist.send(x, 1 - rank)
        dist.recv(x, 1 - rank)
    return float(x[0])


def sends_in_one_batch() -> list[str]:
    rank, x = begin()
    size = dist.get_world_size()
    joined: list[str] = []
    batches_seam.joins_calls = lambda group, device: True  # as NCCL says of itself
    real = dist.ProcessGroup._start_coalescing

    def start(*args: Any) -> None:
        joined.append("joined")
        real(*args)

    replace_method("_start_coalescing", start)
    batch = [dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, x.clone(), (rank - 1) % size)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return joined


def is_refused_once() -> None:
    """A message that was refused never took place."""
    rank, x = begin()
    real = dist.ProcessGroup.send

    def refuse(*args: Any, **kwargs: Any) -> Any:
        replace_method("send", real)
        raise RuntimeError("refused")

    if rank == 0:
        replace_method("send", refuse)
        with suppress(RuntimeError):
            dist.send(x, 1)
        time.sleep(1.0)


def overflows_its_ledger() -> None:
    """Of what rank 1 has done the oldest is overwritten: nobody can say how far it came."""
    rank, x = begin()
    dist.all_reduce(x)
    dist.all_reduce(x)
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch leaves it out
    for step in range(5000 * (rank == 1)):
        store.set("step", str(step))


def gives_its_group_up() -> None:
    """Who waits no more has given up what nobody came to."""
    rank, x = begin()
    if rank == 0:
        dist.all_reduce(x)
        dist.destroy_process_group()
        time.sleep(1.0)


def polls_and_gives_up() -> None:
    rank, x = begin()
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        time.sleep(1.0)
        assert work is not None
        dist.destroy_process_group()


def makes_its_group_again() -> None:
    """A group of the same name counts anew; of three one comes late to its first call, another is gone by then."""
    rank, x = begin()
    for _ in range(10):
        dist.all_reduce(x)
    dist.destroy_process_group()
    rank, x = begin()
    time.sleep(1.0 * (rank == 2))
    dist.all_reduce(x)
    time.sleep(1.5 * (rank == 0))


def fails_in_a_batch() -> list[object]:
    """What is joined is let go where one of it fails, and calls are made again."""
    rank, x = begin()
    batches_seam.joins_calls = lambda group, device: True
    real, size = dist.ProcessGroup.send, dist.get_world_size()

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("failed")

    batch = [dist.P2POp(dist.irecv, x.clone(), (rank - 1) % size), dist.P2POp(dist.isend, x, (rank + 1) % size)]
    replace_method("send", fail)
    with suppress(RuntimeError):
        dist.batch_isend_irecv(batch)
    replace_method("send", real)
    left = dict(distributed_c10d._world.pg_coalesce_state)
    dist.barrier()
    return [left]


def goes_on_after_the_last() -> float:
    rank, x = begin()
    for _ in range(3):
        dist.all_reduce(x)
    time.sleep(1.5 * (rank == 0))  # the others have long come to their end
    return float(x[0])


@pytest.fixture(scope="module", params=[2, 3])
def world(request: pytest.FixtureRequest) -> Any:
    with World(request.param, init=False) as made:
        yield made


def line(body: Callable[..., Any], mark: str = "# missing") -> int:
    code = body.__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    return next(at for at in range(code.co_firstlineno, len(lines) + 1) if mark in lines[at - 1])


@pytest.mark.parametrize("body", [skips_one, skips_one_silently])
def test_a_call_that_one_rank_leaves_out_is_told_without_a_deadline(world: World, body: Callable[..., Any]) -> None:
    outcome = world.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.MISSING, finding
    assert finding.culprits == ((1,) if world.n > 2 else ())
    assert f"test_on_device.py:{line(body)}" in str(finding)
    assert outcome.elapsed < SOON_S


def test_who_raised_is_the_culprit_and_who_waits_for_the_device_a_victim(world: World) -> None:
    outcome = world.run(raises, deadline=DEADLINE_S)
    assert outcome.culprits == (1,)
    assert outcome.victims == tuple(rank for rank in range(world.n) if rank != 1)
    assert "waits in collective.all_reduce #0" in str(outcome.ranks[0])
    assert outcome.elapsed < SOON_S


def test_who_ends_by_plan_leaves_the_others_the_whole_deadline(world: World) -> None:
    plan = Plan.parse("rank 1: exit(5) before collective.all_reduce #1")
    outcome = world.run(all_reduces_once, plan=plan, deadline=3.0)
    assert outcome.ranks[1].by_plan
    assert "waits in collective.all_reduce #0" in str(outcome.ranks[0])
    assert outcome.elapsed > 3.0


def test_a_message_that_nobody_sends(world: World) -> None:
    outcome = world.run(receives_nothing, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.UNMATCHED, finding
    assert outcome.elapsed < SOON_S


@pytest.mark.parametrize(("others_end", "deadline", "soon"), [(True, DEADLINE_S, SOON_S), (False, 7.0, DEADLINE_S)])
def test_a_message_too_many_before_a_collective_that_all_come_to(
    world: World, others_end: bool, deadline: float, soon: float
) -> None:
    outcome = world.run(receives_once_more, others_end, deadline=deadline)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.UNMATCHED, finding
    assert f"test_on_device.py:{line(receives_once_more, '# once more')}" in str(finding)
    assert outcome.elapsed < soon


def test_two_that_each_receive_first_wait_for_each_other_on_the_device(world: World) -> None:
    outcome = world.run(both_receive_first, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.DEADLOCK, finding
    assert set(finding.ranks) == {0, 1}
    assert f"test_on_device.py:{line(both_receive_first, '# first')}" in str(finding)
    assert outcome.elapsed < SOON_S


LEFT_ALONE = [
    *(goes_on_after_the_last, connects_slowly, is_refused_once, overflows_its_ledger),
    *(gives_its_group_up, makes_its_group_again),
]


@pytest.mark.parametrize("body", LEFT_ALONE)
def test_who_is_late_with_nothing_missing_is_left_alone(world: World, body: Callable[..., Any]) -> None:
    outcome = world.run(body, deadline=DEADLINE_S)
    assert [rank.status for rank in outcome.ranks] == [Status.RETURNED] * world.n
    assert outcome.ok


def test_who_polls_a_call_may_give_it_up(world: World) -> None:
    outcome = world.run(polls_and_gives_up, deadline=DEADLINE_S)
    assert [rank.status for rank in outcome.ranks] == [Status.RETURNED] * world.n
    assert outcome.findings[0].kind is FindingKind.REQUEST_LEAK, "which is all that is wrong with it"


def test_a_batch_in_which_one_message_fails_leaves_nothing_joined(world: World) -> None:
    outcome = world.run(fails_in_a_batch, deadline=DEADLINE_S)
    assert [rank.value for rank in outcome.ranks] == [[{}]] * world.n


def test_a_batch_of_messages_is_joined_where_the_backend_can(world: World) -> None:
    needs(Can.JOIN_FAKES)
    outcome = world.run(sends_in_one_batch, deadline=DEADLINE_S)
    assert outcome.unwrap() == [["joined"]] * world.n
    for rank in outcome.ranks:
        assert [record.step.op for record in rank.ledger if record.step.message] == ["send", "recv"]


class Group:
    """One whose backends have these names, by kind of device."""

    def __init__(self, **names: str) -> None:
        self._names = names
        self._device_types = [torch.device(kind) for kind in names]

    def _get_backend(self, device: torch.device) -> Any:
        name = self._names[device.type]
        if not name:
            raise RuntimeError("has none")
        return SimpleNamespace(name=lambda: name)


def test_groups_with_a_backend_for_main_memory_are_none_of_a_device() -> None:
    assert torch_seam.goes_on_after_calls(Group(cuda="nccl"))
    assert not torch_seam.goes_on_after_calls(Group(cpu="gloo", cuda="nccl"))
    assert not torch_seam.goes_on_after_calls(Group(cpu="gloo", cuda="gloo"))
    assert not torch_seam.goes_on_after_calls(Group(cuda=""))


def test_no_call_of_gloo_goes_on() -> None:
    def marked() -> list[str]:
        dist.barrier()
        return [str(torch_seam.goes_on_after_calls(dist.group.WORLD))]

    with World(2) as world:
        assert world.run(marked).unwrap() == [["False"]] * 2
