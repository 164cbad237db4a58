"""Calls that torch does not wait for: the beaten path does, watches and writes down what the general way does."""

from __future__ import annotations

import functools
import os
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from rankdrill.boundary import torch_seam
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.handles import MOST_WATCHED, Access, AnyHandle, Handles
from rankdrill.boundary.issued import BeatenWork
from rankdrill.boundary.work import TrackedWork
from rankdrill.ledger import Record, State
from rankdrill.native import hot
from tests.faults.here import Here, rank_here
from tests.torch_can import end_group

BOUND = timedelta(seconds=30)
native = pytest.mark.skipif(
    hot is None or not torch_seam.keeps_work(), reason="the C was not built, or is of no use to this torch"
)


@dataclass
class Told:
    """What a rank's handles told of accesses."""

    seen: list[tuple[str, str, int]] = field(default_factory=list)

    def __call__(self, handle: AnyHandle, access: Access) -> None:
        self.seen.append((str(access.use), access.role, handle.step.sequence))


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def here(tmp_path: Path, told: Told) -> Iterator[Here]:
    """A world of one in this process, whose handles are watched."""
    with rank_here(ignored=(str(tmp_path),)) as rank:
        rank.boundary.handles = Handles(told)
        store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=BOUND)
        dist.all_reduce(torch.ones(1))  # which introduces the group
        yield rank
        rank.boundary.handles.rest()
        end_group()


def default_group() -> DrilledGroup:
    group: Any = dist.group.WORLD
    assert isinstance(group, DrilledGroup)
    return group


def handles(here: Here) -> Handles:
    assert here.boundary.handles is not None
    return here.boundary.handles


def last(here: Here) -> Record:
    return here.view.records[-1]


def issue(tensor: torch.Tensor) -> Any:
    return dist.all_reduce(tensor, async_op=True)


def wrapper(tensor: torch.Tensor) -> Any:
    """A function of the user's that is called as torch's decorators are: whose it is, is looked at in Python."""
    return dist.all_reduce(tensor, async_op=True)


ISSUES: list[Callable[[torch.Tensor], Any]] = [issue, wrapper]


# ---------------------------------------------------------------------------------------------------- handles


@native
def test_it_is_taken_where_it_can_be(here: Here) -> None:
    assert isinstance(issue(torch.ones(1)), BeatenWork)
    assert type(wrapper(torch.ones(1))) is TrackedWork
    assert type(issue(torch.ones(4, 4)[:, 1:3].t()[:1])) is TrackedWork, "which is not contiguous"


@pytest.mark.parametrize("issue", ISSUES)
def test_it_is_issued_then_waited_for(here: Here, issue: Callable[[torch.Tensor], Any]) -> None:
    for number in range(1, 4):
        work = issue(torch.ones(1))
        record = last(here)
        assert (record.state, record.step.sequence, record.end_ns) == (State.ISSUED, number, 0)
        assert (record.step.op, record.step.fingerprint) == ("all_reduce", "float32[1] sum")
        assert record.step.site is not None
        assert record.step.site.function == issue.__name__
        assert list(handles(here).under_way) == [number - 1]
        assert work.wait() is True
        record = last(here)
        assert (record.state, record.patience_ms) == (State.ENDED, 30000)
        assert record.begin_ns <= record.end_ns
        assert not handles(here).under_way
        assert not handles(here).unsettled
    assert here.boundary.open


def poll(work: Any) -> None:
    while not work.is_completed():
        os.sched_yield()


WAITS: dict[str, Callable[[Any], Any]] = {
    "twice": lambda work: (work.wait(), work.wait()),
    "for so long": lambda work: work.wait(timedelta(seconds=3)),
    "for so long, by name": lambda work: work.wait(timeout=timedelta(seconds=3)),
    "as C++ asks": lambda work: work.wait(timedelta(0)),
    "in C++": dist.Work.wait,
    "polled": poll,
    "for its future": lambda work: work.get_future().wait(),
    "for its stream": lambda work: (work.synchronize(), work.wait()),
}


@pytest.mark.parametrize("issue", ISSUES)
@pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))
def test_whichever_way_it_is_waited_for(here: Here, issue: Callable[[torch.Tensor], Any], wait: Any) -> None:
    tensor = torch.ones(2)
    work = issue(tensor)
    wait(work)
    assert not handles(here).unsettled
    assert not torch.overrides.has_torch_function((tensor,))
    poll(work)
    assert last(here).state is State.ENDED
    assert (work.is_success(), work.result()[0] is not None) == (True, True)
    assert handles(here).take_unwaited() == []


@pytest.mark.parametrize("issue", ISSUES)
def test_a_wait_that_fails_is_on_record(here: Here, issue: Callable[[torch.Tensor], Any]) -> None:
    for number in range(1, 4):
        work = dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND, async_op=True)  # of floats
        assert work is not None
        with pytest.raises(RuntimeError):
            work.wait()
        record = last(here)
        assert (record.step.sequence, record.state) == (number, State.RAISED)
        assert record.error.startswith("RuntimeError")
    assert here.boundary.open


def test_what_is_refused_gives_its_number_back(here: Here) -> None:
    for _ in range(3):
        with pytest.raises((RuntimeError, ValueError)):
            dist.all_gather([torch.zeros(1), torch.zeros(1)], torch.ones(1), async_op=True)
        assert default_group().sequence.upcoming == 1
        assert last(here).state is State.RAISED
        assert not handles(here).unsettled


# ---------------------------------------------------------------------------------------------------- lost


@pytest.mark.parametrize("issue", ISSUES)
def test_a_handle_that_is_dropped_is_lost_and_its_memory_is_not(here: Here, issue: Any) -> None:
    tensor = torch.ones(1000)
    memory = weakref.ref(tensor)
    issue(tensor)
    (handle,) = handles(here).unsettled.values()
    assert handle.lost
    (region,) = handle.buffers.outputs
    assert (region.start, region.end) == (tensor.data_ptr(), tensor.data_ptr() + 4000)
    del tensor
    until = time.monotonic() + BOUND.total_seconds()
    while memory() is not None and time.monotonic() < until:  # gloo's own thread may be at it
        os.sched_yield()
    assert memory() is None
    assert [step.sequence for step, _ in handles(here).take_unwaited()] == [1]
    assert handles(here).take_unwaited() == []


@pytest.mark.parametrize("issue", ISSUES)
def test_what_is_due_is_told_though_somebody_has_it(here: Here, issue: Any) -> None:
    kept = [issue(torch.ones(1)) for _ in range(3)]
    kept[1].wait()
    assert handles(here).take_unwaited() == []
    handles(here).expect({0, 1})
    assert [step.sequence for step, _ in handles(here).take_unwaited()] == [1]
    handles(here).forget({2})
    handles(here).expect()
    assert handles(here).take_unwaited() == []
    for work in kept:
        work.wait()


def test_a_functional_result_is_for_any_member_to_wait_for(here: Here) -> None:
    for _ in range(2):
        result = funcol.all_reduce(torch.ones(1), "sum", default_group())
        ((_, handle),) = handles(here).unsettled.items()
        assert handle.of_all == (0,)
        assert not handles(here).under_way, "whoever uses it waits for it"
        assert (result + 1).tolist() == [2.0]
        assert not handles(here).unsettled
        assert [record.state for record in here.view if record.step.op == "all_reduce"][-1] is State.ENDED


def test_what_a_library_issues_is_for_it_to_wait_for(here: Here) -> None:
    opts = dist.AllreduceOptions()
    for _ in range(2):
        work = default_group().allreduce([torch.ones(1)], opts)  # not by a function of torch's that gives a handle
        assert not handles(here).unsettled
        assert last(here).state is State.ISSUED
        work.wait()
        assert last(here).state is State.ENDED


# ---------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("issue", ISSUES)
def test_an_access_while_it_is_under_way_is_told(here: Here, told: Told, issue: Any) -> None:
    for number in range(1, 3):
        tensor = torch.ones(4)
        work = issue(tensor)
        tensor.shape, torch.ones(4).sum(), tensor.view(2, 2)
        assert told.seen == []
        tensor[1:].sum()
        assert told.seen == [("read", "output", number)]
        told.seen.clear()
        work.wait()
        tensor.add_(1)
        assert told.seen == []


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("issue", ISSUES)
def test_a_call_on_the_memory_of_another_is_told(here: Here, told: Told, issue: Any, asynchronous: bool) -> None:
    whole, works = torch.ones(12), list[Any]()
    for _ in range(2):  # met for the first time, and known
        works += [issue(whole[:4]), issue(whole[4:8])]
        assert told.seen == []
        number = default_group().sequence.upcoming
        works.append(dist.all_reduce(whole[7:], async_op=asynchronous))
        assert told.seen == [("wrote into", "output", number - 1)] or told.seen == [("read", "output", number - 1)]
        told.seen.clear()
        for work in works:
            if work is not None:
                work.wait()


def test_what_only_reads_may_read_what_is_read(here: Here, told: Told) -> None:
    for _ in range(2):
        shard, gathered = torch.ones(4), [[torch.zeros(4)] for _ in range(2)]
        works = [dist.all_gather(there, shard, async_op=True) for there in gathered]
        shard.sum()
        assert told.seen == []
        shard.zero_()
        assert [(use, role) for use, role, _ in told.seen] == [("wrote into", "input")]
        told.seen.clear()
        for work in works:
            assert work is not None
            work.wait()


def test_the_root_of_a_broadcast_only_reads(here: Here, told: Told) -> None:
    for _ in range(2):
        tensor = torch.ones(4)
        work = dist.broadcast(tensor, 0, async_op=True)
        tensor.sum()
        assert told.seen == []
        tensor.zero_()
        assert [(use, role) for use, role, _ in told.seen] == [("wrote into", "input")]
        told.seen.clear()
        assert work is not None
        work.wait()


@pytest.mark.parametrize("issue", ISSUES)
def test_the_memory_is_what_it_was_when_it_was_issued(here: Here, told: Told, issue: Any) -> None:
    tensor, other = torch.ones(4), torch.ones(4)
    was = tensor.detach()
    work = issue(tensor)
    tensor.data = other
    told.seen.clear()
    tensor.sum()
    assert told.seen == []
    was.sum()
    assert [use for use, _, _ in told.seen] == ["read"]
    work.wait()


@pytest.mark.parametrize("issue", ISSUES)
def test_a_mode_is_laid_once_however_many_are_under_way(here: Here, issue: Any) -> None:
    works = [issue(torch.ones(1)) for _ in range(20)]
    assert torch._C._len_torch_function_stack() == 1
    assert len(handles(here).under_way) == 20
    for work in works:
        work.wait()
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("issue", ISSUES)
def test_only_the_newest_are_watched(here: Here, issue: Any) -> None:
    works = [issue(torch.ones(1)) for _ in range(MOST_WATCHED + 2)]
    assert list(handles(here).under_way) == list(range(2, MOST_WATCHED + 2))
    assert len(handles(here).unsettled) == MOST_WATCHED + 2
    for work in works:
        work.wait()
    assert not handles(here).unsettled


# ---------------------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize("issue", ISSUES)
def test_a_child_of_the_rank_writes_nothing_of_it(here: Here, issue: Any) -> None:
    work = issue(torch.ones(1))
    while not work.inner.is_completed():
        os.sched_yield()
    pid = os.fork()
    if not pid:
        waited = here.boundary.ledger is None and work.wait()
        os._exit(0 if waited else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert last(here).state is State.ISSUED
    work.wait()
    assert last(here).state is State.ENDED


def test_buckets_of_a_reducer_are_named_and_over_with_the_pass(here: Here) -> None:
    layers = [torch.nn.Linear(8, 8) for _ in range(4)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1e-6)
    for _ in range(3):
        before = len(here.view.records)
        model(torch.ones(1, 8)).sum().backward()
        buckets = [record for record in here.view.records[before:] if record.step.op == "all_reduce"]
        named = [record.step.site.via for record in buckets if record.step.site is not None]
        assert named == [f"DDP bucket {number}" for number in range(len(buckets))]
        assert {record.state for record in buckets} == {State.ENDED}
    assert len(buckets) == 8
    assert not default_group().waits_at_the_end.waiting
    dist.all_reduce(torch.ones(1))
    assert last(here).step.site.via == "all_reduce"  # type: ignore[union-attr]
    assert not handles(here).unsettled


def test_a_pass_that_fails_leaves_nothing_to_the_next(here: Here) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
            return tensor.clone()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            raise ZeroDivisionError

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.fails = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), True

        def forward(self, tensor: torch.Tensor) -> torch.Tensor:
            middle = self.first(tensor)
            return self.second(Fails.apply(middle) if self.fails else middle)  # type: ignore[no-untyped-call, no-any-return]

    module = Model()
    model = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=1e-6)
    with pytest.raises(ZeroDivisionError):
        model(torch.ones(1, 8)).sum().backward()
    module.fails = False
    model = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=1e-6)
    for expected in (1, 4):  # torch makes its buckets in the first pass
        before = len(here.view.records)
        model(torch.ones(1, 8)).sum().backward()
        buckets = [record for record in here.view.records[before:] if record.step.op == "all_reduce"]
        named = [record.step.site.via for record in buckets if record.step.site is not None]
        assert named == [f"DDP bucket {number}" for number in range(expected)]
        assert {record.state for record in buckets} == {State.ENDED}


@native
def test_its_wait_is_a_method_to_whoever_wraps_it() -> None:
    """As DeepSpeed does, which names what it times."""
    work = BeatenWork()
    assert (work.wait.__name__, work.wait.__qualname__) == ("wait", "TrackedWork.wait")
    assert (work.wait.__module__, work.wait.__self__) == (TrackedWork.__module__, work)
    assert functools.wraps(work.wait)(lambda: None).__doc__ == TrackedWork.wait.__doc__
