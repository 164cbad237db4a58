"""Strikes at collectives in a world of one, in this very process: what is issued, by which number, what comes back.

One rank is out of step with nobody, so every call completes: what it was can be read from the ledger to the letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.boundary import Boundary, Call, torch_seam
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.done import Done
from rankdrill.faults import STRIKES, When
from rankdrill.faults.issue import issue, map_tensors, tensors_of
from rankdrill.faults.works import Chained
from rankdrill.ledger import State
from rankdrill.step import Kind, Step
from tests.faults.here import Here, rank_here
from tests.torch_can import end_group

TIMEOUT_S = 30


@contextmanager
def alone(plan: str) -> Iterator[Here]:
    """A rank in this process, in a world of its own, struck by `plan`."""
    with TemporaryDirectory(prefix="alone-") as directory, rank_here(plan, ignored=(directory,)) as here:
        store = dist.FileStore(str(Path(directory, "store")), 1)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=TIMEOUT_S))
        try:
            yield here
        finally:
            end_group()


def issued(here: Here) -> list[str]:
    """``all_reduce#0 float32[2] sum``: the calls on record."""
    steps = [record.step for record in here.view if record.step.kind == "collective"]
    return [f"{step.op}#{step.sequence} {step.fingerprint}".rstrip() for step in steps]


def states(here: Here) -> set[State]:
    return {record.state for record in here.view if record.step.kind == "collective"}


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


# ---------------------------------------------------------------------------------------------------- order


def test_a_call_that_is_skipped_is_done_and_gives_its_number_back() -> None:
    with alone("rank 0: skip at collective.all_reduce") as here:
        tensor = ones(2)
        work = dist.all_reduce(tensor, async_op=True)
        assert work.is_completed()
        assert work.is_success()
        assert work.wait()
        (given,) = work.get_future().wait()
        assert given is tensor
        dist.all_reduce(ones(3))
        assert issued(here) == ["all_reduce#0 float32[2] sum", "all_reduce#0 float32[3] sum"]
        assert here.fired == (1,)


def test_all_tensors_of_a_call_that_is_skipped_come_back_as_they_were() -> None:
    with alone("rank 0: skip at collective.all_gather"):
        outputs, tensor = [torch.zeros(2)], ones(2)
        work = dist.all_gather(outputs, tensor, async_op=True)
        assert [given.tolist() for given in work.get_future().wait()] == [[1.0, 1.0], [0.0, 0.0]]


def test_a_call_without_a_handle_is_skipped_without_one() -> None:
    with alone("rank 0: skip at collective.monitored_barrier") as here:
        assert dist.monitored_barrier() is None
        assert issued(here) == ["monitored_barrier#0"]


def test_an_extra_call_is_issued_on_copies_and_waited_for() -> None:
    with alone("rank 0: extra at collective.all_gather") as here:
        outputs, tensor = [torch.zeros(2)], ones(2)
        work = dist.all_gather(outputs, tensor, async_op=True)
        assert work.wait()
        assert outputs[0].tolist() == [1.0, 1.0]
        dist.barrier()
        assert issued(here) == ["all_gather#0 float32[2]", "all_gather#1 float32[2]", "barrier#2"]
        assert states(here) == {State.ENDED}
        assert here.fired == (1,)


def test_the_extra_of_a_call_in_place_does_not_change_it_twice() -> None:
    with alone("rank 0: extra at collective.broadcast"):
        tensor = ones(2)
        work = dist.broadcast(tensor, 0, async_op=True)
        tensor.fill_(5)
        work.wait()
        assert tensor.tolist() == [5.0, 5.0]


def test_a_swapped_call_follows_the_next_and_takes_its_number() -> None:
    with alone("rank 0: swap at collective.all_reduce") as here:
        first = dist.all_reduce(ones(1), async_op=True)
        assert first.is_completed()
        assert first.get_future().wait()[0].shape == (1,)
        torch.zeros(1)  # a step of another kind is no next call
        assert issued(here) == ["all_reduce#0 float32[1] sum"]
        second = dist.broadcast(ones(2), 0, async_op=True)
        assert second.wait()
        dist.barrier()
        assert issued(here) == [
            "all_reduce#0 float32[1] sum",
            "broadcast#0 float32[2] root=0",
            "all_reduce#1 float32[1] sum",
            "barrier#2",
        ]
        assert here.view.records[-2].state is State.ENDED
        assert here.fired == (1,)


def test_a_call_that_is_struck_while_another_is_held_back_is_the_next() -> None:
    with alone("rank 0: swap at collective.all_reduce every") as here:
        for size in (1, 2, 3, 4):
            dist.all_reduce(ones(size))
        assert issued(here) == [
            "all_reduce#0 float32[1] sum",
            "all_reduce#0 float32[2] sum",
            "all_reduce#1 float32[1] sum",
            "all_reduce#2 float32[3] sum",
            "all_reduce#2 float32[4] sum",
            "all_reduce#3 float32[3] sum",
        ]


def test_a_swapped_call_follows_one_without_a_handle() -> None:
    with alone("rank 0: swap at collective.all_reduce") as here:
        dist.all_reduce(ones(1))
        assert dist.monitored_barrier() is None
        assert issued(here) == [
            "all_reduce#0 float32[1] sum",
            "monitored_barrier#0",
            "all_reduce#1 float32[1] sum",
        ]


def test_after_a_collective_it_is_over_although_nobody_waits() -> None:
    with alone("rank 0: delay(0) after collective.all_reduce\nrank 0: extra at collective.all_reduce") as here:
        work = dist.all_reduce(ones(1), async_op=True)
        assert here.view.records[-1].state is State.ENDED, "the extra call, which nobody else waits for"
        work.wait()
        assert here.fired == (1, 1)


def test_what_is_issued_instead_is_struck_no_more_and_goes_through_the_faults_within() -> None:
    with alone("rank 0: wrong_op at collective.all_reduce\nrank 0: oom at collective.all_reduce #1") as here:
        with pytest.raises(MemoryError, match=r"out of memory at collective\.all_reduce #0 .*max"):
            dist.all_reduce(ones(1))
        assert here.fired == (1, 1)
        assert [(r.step.fingerprint, r.state, r.fault) for r in here.view if r.step.op == "all_reduce"] == [
            ("float32[1] sum", State.RAISED, 0),
            ("float32[1] max", State.RAISED, 1),
        ]
        assert here.view.records[-1].error == "MemoryError"


def test_what_is_issued_instead_says_how_long_it_waits() -> None:
    with alone("rank 0: wrong_op at collective.all_reduce") as here:
        dist.all_reduce(ones(1))
        assert here.view.records[-1].patience_ms == TIMEOUT_S * 1000


def give(work: Any, call: Call) -> Any:
    return work


def test_what_is_issued_instead_is_over_at_once_where_nobody_is_to_wait_for_it() -> None:
    with alone("") as here:
        under_way = dist.all_reduce(ones(1), async_op=True)
        call = Call(Step(Kind.COLLECTIVE, "barrier", "default"), {"group": dist.group.WORLD})
        for work in (None, under_way):  # no handle, and one that tells the ledger itself
            assert issue(call, partial(give, work), here.boundary) is work
            assert (here.view.records[-1].step.op, here.view.records[-1].state) == ("barrier", State.ENDED)


def test_a_rank_that_keeps_no_ledger_issues_all_the_same() -> None:
    with alone("") as here:
        call = Call(Step(Kind.COLLECTIVE, "barrier", "default"), {"group": dist.group.WORLD})
        assert issue(call, partial(give, None), Boundary()) is None
        assert issued(here) == []


# ------------------------------------------------------------------------------------------------- mismatches


def test_a_wrong_shape_is_larger_and_what_fits_comes_back() -> None:
    with alone("rank 0: wrong_shape(3) at collective.all_reduce") as here:
        tensor = torch.arange(4.0).reshape(2, 2).requires_grad_()
        dist.all_reduce(tensor.detach())
        assert tensor.tolist() == [[0.0, 1.0], [2.0, 3.0]]
        assert issued(here) == ["all_reduce#0 float32[2,2] sum", "all_reduce#0 float32[7] sum"]


def test_a_wrong_shape_of_a_gather_grows_inputs_and_outputs_alike() -> None:
    with alone("rank 0: wrong_shape at collective.all_gather") as here:
        outputs = [torch.zeros(2, 1)]
        dist.all_gather(outputs, torch.tensor([[3.0], [4.0]]))
        assert outputs[0].tolist() == [[3.0], [4.0]]
        assert issued(here)[-1] == "all_gather#0 float32[3]"


def test_a_wrong_shape_that_is_split_evenly_stays_divisible() -> None:
    with alone("rank 0: wrong_shape(2) at collective.all_to_all_single") as here:
        output = torch.zeros(2)
        dist.all_to_all_single(output, torch.tensor([3.0, 4.0]))
        assert output.tolist() == [3.0, 4.0]
        assert issued(here)[-1] == "all_to_all_single#0 float32[4]"


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # a name that torch 2.13 renames
def test_a_wrong_shape_of_several_tensors_keeps_their_proportion() -> None:
    with alone("rank 0: wrong_shape at collective.reduce_scatter_tensor"):
        output = torch.zeros(3)
        dist.reduce_scatter_tensor(output, torch.tensor([3.0, 4.0, 5.0]))
        assert output.tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        (torch.float32, "int32"),
        (torch.int32, "float32"),
        (torch.float64, "int64"),
        (torch.int64, "float64"),
        (torch.float16, "bfloat16"),
        (torch.bfloat16, "float16"),
        (torch.uint8, "int8"),
        (torch.int8, "uint8"),
    ],
)
def test_a_wrong_dtype_is_of_the_same_size(dtype: torch.dtype, other: str) -> None:
    with alone("rank 0: wrong_dtype at collective.all_gather") as here:
        outputs = [torch.zeros(2, dtype=dtype)]
        dist.all_gather(outputs, torch.tensor([3, 4], dtype=dtype))
        assert outputs[0].tolist() == [3, 4]
        assert outputs[0].dtype is dtype
        assert issued(here)[-1] == f"all_gather#0 {other}[2]"


@pytest.mark.parametrize(
    ("strike", "tensor", "fits"),
    [
        ("wrong_dtype", torch.ones(1, dtype=torch.bool), False),
        ("wrong_dtype", torch.ones(0), False),
        ("wrong_shape", torch.ones(0), False),
        ("wrong_shape", torch.ones(1), True),
        ("wrong_op", torch.ones(1), True),
        ("wrong_group", torch.ones(1), False),
    ],
)
def test_what_could_change_nothing_is_not_struck(strike: str, tensor: torch.Tensor, fits: bool) -> None:
    op = "all_reduce" if strike == "wrong_op" else "broadcast"
    with alone(f"rank 0: {strike} at collective.{op}") as here:
        dist.all_reduce(tensor) if op == "all_reduce" else dist.broadcast(tensor, 0)
        assert here.fired == (int(fits),)
        assert len(issued(here)) == 1 + fits


def test_one_is_the_root_of_everything_in_a_world_of_one() -> None:
    with alone("rank 0: wrong_root at collective.broadcast") as here:
        dist.broadcast(ones(1), 0)
        assert here.fired == (0,)


@pytest.mark.parametrize(("asked", "issued_as"), [("SUM", "max"), ("MAX", "sum"), ("MIN", "sum"), ("PRODUCT", "sum")])
def test_a_wrong_op_is_max_for_sum_and_sum_for_anything_else(asked: str, issued_as: str) -> None:
    with alone("rank 0: wrong_op at collective.reduce") as here:
        dist.reduce(ones(2), 0, getattr(dist.ReduceOp, asked))
        assert issued(here) == [
            f"reduce#0 float32[2] {asked.lower()} root=0",
            f"reduce#0 float32[2] {issued_as} root=0",
        ]


def test_a_wrong_op_is_noticed_where_a_group_is_asked_by_its_own_method() -> None:
    with alone("rank 0: wrong_op at collective.all_reduce") as here:
        group: Any = dist.group.WORLD
        group.allreduce([ones(2)], dist.ReduceOp.SUM).wait()  # without options around the op
        assert issued(here) == ["all_reduce#0 float32[2] sum", "all_reduce#0 float32[2] max"]


def test_a_wrong_group_is_another_of_the_rank() -> None:
    with alone("rank 0: wrong_group at collective.all_reduce every") as here:
        other = dist.new_group([0])
        dist.all_reduce(ones(1))
        dist.all_reduce(ones(2), group=other)
        dist.all_reduce(ones(3))
        groups = [(r.step.target == "default", r.step.sequence) for r in here.view if r.step.op == "all_reduce"]
        assert groups == [(True, 0), (False, 0), (False, 1), (True, 0), (True, 1), (False, 1)]
        assert [group.ranks() for group in here.view.groups] == [(0,), (0,)]


class Unconnected(DrilledGroup):
    """A group of `size` ranks that nothing is issued on."""

    def __init__(self, size: int) -> None:
        dist.ProcessGroup.__init__(self, 0, size)  # type: ignore[call-arg]


def test_a_wrong_group_is_one_of_the_same_size_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here, three, two = groups = [Unconnected(2), Unconnected(3), Unconnected(2)]
    call = Call(Step(Kind.COLLECTIVE, "broadcast", "pair"), {"group": here, "tensors": [ones(1)]})
    monkeypatch.setattr(torch_seam, "groups", lambda: groups)
    assert strike("wrong_group").changed(call).args["group"] is two
    groups.remove(two)
    assert strike("wrong_group").changed(call).args["group"] is three


# ------------------------------------------------------------------------------------------ groups of several


def of_two(op: str, rank: int, opts: Any = None, **args: Any) -> Call:
    """The call of `rank` in a group of two that is never issued."""
    group = dist.ProcessGroup(rank, 2)  # type: ignore[call-arg]
    return Call(Step(Kind.COLLECTIVE, op, "pair"), {"group": group, "opts": opts, **args})


def strike(name: str, *values: float) -> Any:
    return STRIKES[name](When.AT, values, Boundary())


@pytest.mark.parametrize(("root", "other"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_a_wrong_root_is_the_next_in_the_group(op: str, root: int, other: int) -> None:
    opts = dist.BroadcastOptions() if op == "broadcast" else dist.ReduceOptions()
    opts.rootRank, opts.timeout = root, timedelta(seconds=7)
    call = of_two(op, 0, opts, tensors=[ones(1)])
    assert strike("wrong_root").fits(call)
    changed = strike("wrong_root").changed(call)
    assert (changed.args["opts"].rootRank, changed.args["opts"].timeout) == (other, timedelta(seconds=7))
    assert opts.rootRank == root, "the caller's own options stay as they are"
    assert {name: value for name, value in changed.args.items() if name != "opts"} == {
        name: value for name, value in call.args.items() if name != "opts"
    }


@pytest.mark.parametrize(("root", "other"), [(0, 1), (1, 2), (2, 0)])
def test_after_the_last_of_the_group_comes_the_first(root: int, other: int) -> None:
    opts = dist.BroadcastOptions()
    opts.rootRank = root
    group = dist.ProcessGroup(0, 3)  # type: ignore[call-arg]
    call = Call(Step(Kind.COLLECTIVE, "broadcast", "three"), {"group": group, "opts": opts, "tensors": [ones(1)]})
    assert strike("wrong_root").changed(call).args["opts"].rootRank == other


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_only_who_takes_itself_for_the_root_has_tensors_for_all(op: str, rank: int) -> None:
    mine = torch.tensor([3.0, 4.0])
    opts = dist.GatherOptions() if op == "gather" else dist.ScatterOptions()
    opts.rootRank = 0
    many, one = ("outputs", "tensors") if op == "gather" else ("tensors", "outputs")
    every = [[ones(2), ones(2)]] if rank == 0 else []
    changed = strike("wrong_root").changed(of_two(op, rank, opts, **{one: [mine], many: every}))
    assert changed.args["opts"].rootRank == 1
    assert changed.args[one] == [mine]
    made = changed.args[many]
    if rank == 0:
        assert made == []
    else:
        assert [[tensor.tolist() for tensor in tensors] for tensors in made] == [[[3.0, 4.0], [3.0, 4.0]]]
        assert all(tensor is not mine for tensor in made[0])


def test_what_has_no_options_has_no_root_and_no_op() -> None:
    call = of_two("broadcast", 0)
    del call.args["opts"]
    assert not strike("wrong_root").fits(call)
    assert not strike("wrong_op").fits(call)
    assert not strike("wrong_shape", 1).fits(call)


def test_a_wrong_shape_among_two_grows_evenly() -> None:
    call = of_two("all_to_all_single", 0, tensors=[ones(4)], outputs=[ones(4)])
    changed = strike("wrong_shape", 3).changed(call)
    assert [tensor.numel() for tensor in tensors_of(changed)] == [10, 10]
    call = of_two("all_gather_into_tensor", 0, tensors=[ones(3)], outputs=[torch.zeros(2, 3)])
    changed = strike("wrong_shape", 1).changed(call)
    assert [tensor.tolist() for tensor in tensors_of(changed)] == [[1, 1, 1, 0], [0] * 8]


# --------------------------------------------------------------------------------------------------- handles


class Under(dist.Work):
    """A handle that counts who asks it."""

    def __init__(self, name: str = "", *, done: bool = True, well: bool = True) -> None:
        super().__init__()
        self.name, self.done, self.well = name, done, well
        self.waited: list[timedelta | None] = []

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.waited.append(timeout)
        return self.done

    def is_completed(self) -> bool:
        return self.done

    def is_success(self) -> bool:
        return self.well

    def result(self) -> Any:
        return f"result of the {self.name}"

    def get_future(self) -> Any:
        return f"future of the {self.name}"


def test_a_chain_is_over_when_all_of_it_is_and_ends_once() -> None:
    ends: list[int] = []
    works = [Under(), Under(done=False)]
    chain = Chained([None, *works], lambda: ends.append(1))
    assert not chain.is_completed()
    assert ends == []
    works[1].done = True
    assert chain.is_completed()
    assert chain.is_completed()
    assert ends == [1]
    assert chain.wait()
    assert ends == [1]
    assert [work.waited for work in works] == [[None], [None]]


def test_a_chain_waits_for_all_of_it_as_long_as_it_was_told() -> None:
    works = [Under(done=False), Under()]
    ends: list[int] = []
    chain = Chained(works, lambda: ends.append(1))
    assert not chain.wait(timedelta(seconds=3))
    assert [work.waited for work in works] == [[timedelta(seconds=3)]] * 2
    assert ends == [1]


def test_a_chain_is_as_well_as_all_of_it_and_answers_as_its_first() -> None:
    assert Chained([Under(), Under()]).is_success()
    assert not Chained([Under(), Under(well=False)]).is_success()
    chain = Chained([None, Under("first"), Under("second")])
    assert chain.result() == "result of the first"
    assert chain.get_future() == "future of the first"
    assert chain.wait()


def test_what_was_never_sent_is_done() -> None:
    tensors = [torch.zeros(1), torch.ones(1)]
    done = Done(tensors)
    assert done.wait()
    assert done.wait(timedelta(seconds=1))
    assert done.is_completed()
    assert done.is_success()
    assert done.get_future().wait() == tensors


# --------------------------------------------------------------------------------------------------- tensors


def test_tensors_are_changed_in_whatever_they_come() -> None:
    one, two = torch.zeros(1), torch.zeros(2)
    assert map_tensors([one, (two, "x", None)], lambda tensor: tensor.numel()) == [1, (2, "x", None)]
    assert map_tensors(one, lambda tensor: "changed") == "changed"


def test_a_send_has_no_outputs() -> None:
    assert list(tensors_of(Call(Step(Kind.COLLECTIVE, "send", "default"), {"tensors": [ones(1)]}), ("outputs",))) == []
