"""What watched calls go through is the same in C as in Python: the same bytes, the same numbers, the same lines."""

from __future__ import annotations

import inspect
import itertools
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from rankdrill.boundary import beaten
from rankdrill.boundary.beaten import method_of
from rankdrill.boundary.callsites import call_site, plain_call_site
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.habits import well_known
from rankdrill.boundary.methods import METHODS
from rankdrill.boundary.numbering import PlainNumbering
from rankdrill.boundary.options_seam import NOWHERE, Places, places_of
from rankdrill.boundary.tensor_seam import UNKNOWN
from rankdrill.errors import ContractBroken
from rankdrill.ledger import Board, BoardCall, LedgerReader, LedgerWriter, State, make_board
from rankdrill.ledger import format as f
from rankdrill.ledger.mapped import mapped
from rankdrill.ledger.posting import Grid, PlainPosting, posting
from rankdrill.ledger.stencil import PlainStencil, Stencil, stencil
from rankdrill.native import LANE_VARIABLE, hot, lane
from rankdrill.step import Contract, Kind, Site, Step
from tests.faults.here import Here, world_of_one
from tests.torch_can import Can, needs

BOUND_S = 60.0
SITE = Site("/somewhere/train.py", 41, "step", "all_reduce")
SUM = Contract("all_reduce", "sum", dtypes=("float32",), sizes=(4,), shown="float32[4]")
MAX = Contract("all_reduce", "max", dtypes=("float32",), sizes=(4,), shown="float32[4]")
CALLED = Step(Kind.COLLECTIVE, "all_reduce", "default", "float32[4] sum", 16, site=SITE, digest=7, contract=SUM)
MOST = (1 << 64) - 1

native = pytest.mark.skipif(hot is None, reason="the C was not built, or is not wanted")


# ---------------------------------------------------------------------------------------------------- which lane


@pytest.mark.parametrize(("asked", "told"), [("0", "Python"), ("", lane() if hot is not None else "")])
def test_a_variable_says_which_lane(asked: str, told: str) -> None:
    if not told:
        pytest.skip("what is there without it is not known here")
    ran = subprocess.run(
        [sys.executable, "-c", "from rankdrill.native import lane; print(lane())"],
        env=os.environ | {LANE_VARIABLE: asked},
        capture_output=True,
        text=True,
        check=True,
        timeout=BOUND_S,
    )
    assert ran.stdout.strip() == told


def test_what_was_built_from_another_source_is_not_used() -> None:
    module = "sys.modules['rankdrill.native.hot'] = Module(EDITION=0)"
    code = f"import sys; from types import SimpleNamespace as Module; {module}"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}; from rankdrill.native import lane; print(lane())"],
        env=os.environ | {LANE_VARIABLE: ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=BOUND_S,
    )
    assert ran.stdout.strip() == "Python"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}; import rankdrill.native"],
        env=os.environ | {LANE_VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    assert "pip install it anew" in ran.stderr


# ---------------------------------------------------------------------------------------------------- records


@dataclass
class Thread:
    id: int


def ring(capacity: int, kind: bytes, *, plain: bool = False) -> tuple[mmap.mmap, Stencil]:
    memory, thread = mmap.mmap(-1, f.HEADER_BYTES + capacity * f.RECORD_BYTES), Thread(threading.get_native_id())
    if plain or hot is None:
        return memory, PlainStencil(memory, capacity, itertools.count(), thread, kind, 16)
    return memory, stencil(mapped(memory), capacity, hot.Numbering(), thread, kind, 16)


def written(memory: mmap.mmap) -> bytes:
    """All of it but the times."""
    told = bytearray(memory)
    for slot in range(f.HEADER_BYTES, len(told), f.RECORD_BYTES):
        assert int.from_bytes(told[slot + 8 : slot + 16], "little") or not any(told[slot : slot + f.RECORD_BYTES])
        told[slot + 8 : slot + 24] = bytes(16)
    return bytes(told)


@native
def test_both_write_the_same_records() -> None:
    kind = bytes(range(222))
    (one, plain), (other, ours) = ring(4, kind, plain=True), ring(4, kind)
    assert type(plain) is not type(ours)
    for each in (plain, ours):
        first = each.begin(0)
        each.end(first)
        for number in (1, 5, 1 << 40):
            each.wait(each.begin(number), 1800)
        lost = each.begin(7)  # in the slot of the first
        each.end(first)
        each.wait(lost, 0xFFFFFFFF)
    assert written(one) == written(other)


def test_records_of_a_stencil_are_read_as_any_others(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=2) as writer:
        made = writer.stencil(CALLED)
        index = made.begin(3)
        assert index == 0
        made.wait(index, 1500)
        reader = LedgerReader(tmp_path / "ledger")
        (record,) = reader.view()
        assert (record.step, record.step.site, record.step.digest) == (CALLED.like(sequence=3), SITE, 7)
        assert (record.state, record.patience_ms, record.end_ns) == (State.WAITING, 1500, 0)
        assert record.thread == threading.get_native_id()
        writer.mark(writer.begin(CALLED), State.ENDED)
        made.end(index)
        (record, _) = reader.view()
        reader.close()
        assert (record.state, made.begin(4)) == (State.ENDED, 2)
        assert 0 < record.begin_ns <= record.end_ns
    with pytest.raises((ValueError, TypeError)):  # the file is closed
        made.begin(5)


# ---------------------------------------------------------------------------------------------------- posts


@pytest.fixture
def boards(tmp_path: Path) -> Callable[[int], list[Board]]:
    made = itertools.count()

    def make(ranks: int) -> list[Board]:
        path = tmp_path / f"board-{next(made)}"
        make_board(path, ranks)
        return [Board(path, rank) for rank in range(ranks)]

    return make


@pytest.mark.parametrize("group", [5, MOST, MOST - 3])
@pytest.mark.parametrize("ranks", [2, 3, 50])
def test_what_is_posted_again_is_what_is_posted(group: int, ranks: int, boards: Callable[[int], list[Board]]) -> None:
    members = tuple(range(ranks))
    again, once = boards(ranks), boards(ranks)
    for number in (0, 1, 2, 70, 1029):
        for me in members:
            fits = again[me].posting(group, members, me, SUM, SITE)
            assert fits(number)
            once[me].post(BoardCall(group, number), SUM, SITE)
    assert bytes(again[0]._map) == bytes(once[0]._map)
    call = BoardCall(group, 1029)
    assert [post.rank for post in again[0].posted(call, members)] == list(members)
    # In the slot of the one before lies what this rank has told last, whichever way it did.
    again[0].post(call, MAX, SITE)
    assert again[0].posting(group, members, 0, SUM, SITE)(1029)
    assert again[1].posted(call, (0,))[0].reduce_op == "sum"
    again[0].retract(call)
    assert again[1].posted(call, (0,)) == []


@pytest.mark.parametrize("who", [1, 4])
def test_what_does_not_fit_a_neighbour_or_who_came_first_is_looked_at(
    who: int, boards: Callable[[int], list[Board]]
) -> None:
    ranks, members = boards(9), tuple(range(9))
    assert ranks[who].post(BoardCall(5, 0), MAX, SITE) is None
    assert not ranks[0].posting(5, members, 0, SUM, SITE)(0), "a neighbour, or the first"
    assert ranks[0].posting(5, members, 0, SUM, SITE)(1)
    assert ranks[0].posting(6, members, 0, SUM, SITE)(0)
    assert ranks[7].posting(5, members, 7, MAX, SITE)(0), "who came first has posted the same"


def test_nothing_is_posted_once_the_plan_has_bent_a_call(boards: Callable[[int], list[Board]]) -> None:
    one, other = boards(2)
    passes = one.posting(5, (0, 1), 0, SUM, SITE)
    other.bend()
    assert not passes(0)
    assert other.posted(BoardCall(5, 0), (0,)) == []


@native
def test_a_posting_that_would_write_elsewhere_is_refused(boards: Callable[[int], list[Board]]) -> None:
    board = boards(2)[0]
    grid = Grid(board._rings, board._slots, board._slot_bytes, 5, (0, 40), 0)
    told: list[bytes | None] = [None] * board._slots
    assert isinstance(PlainPosting(board._map, grid, told, bytes(64), 0, 0), PlainPosting)
    with pytest.raises(ValueError, match="too short"):
        posting(board._mapped, grid, told, bytes(64), 0, 0)(0)
    with pytest.raises(ValueError, match="no such posting"):
        posting(board._mapped, grid, told[1:], bytes(64), 0, 0)
    board.close()
    with pytest.raises(ValueError, match="closed"):
        posting(board._mapped, grid, told, bytes(64), 0, 0)(0)


# ---------------------------------------------------------------------------------------------------- the rest


@native
def test_numbers_are_the_same() -> None:
    assert hot is not None
    for numbers in (PlainNumbering(), hot.Numbering()):
        assert [numbers.take() for _ in range(3)] == [0, 1, 2]
        numbers.give_back(1)  # another was taken since
        assert numbers.upcoming == 3
        numbers.give_back(2)
        assert (numbers.upcoming, numbers.take()) == (2, 2)


def test_sites_are_the_same() -> None:
    def both() -> tuple[Site | None, Site | None]:
        return call_site(), plain_call_site()

    def helper() -> tuple[Site | None, Site | None]:
        return next(iter([both() for _ in range(1)]))

    for _ in range(2):
        ours, plain = helper()
        assert ours is not None
        assert plain is not None
        assert (ours, ours.caller) == (plain, plain.caller)
        assert ours.function == "both"
        assert ours.caller is not None
    assert helper()[0] is not helper()[0], "two lines of a caller's"
    assert len({id(helper()[0]) for _ in range(3)}) == 1


@pytest.fixture(params=["read where they lie", "asked for"])
def here(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """A world of one in this process; how tensors and options of its calls are looked at is the parameter."""
    if request.param == "asked for":
        if hot is None:
            pytest.skip("Python asks in any case")
        monkeypatch.setattr(beaten, "places_of", lambda op: Places(places_of(op).options, *[NOWHERE] * 4))
        monkeypatch.setattr(beaten, "tensor_places", lambda: UNKNOWN)
        for method, (op, names) in METHODS.items():
            if well_known(op, names) and hasattr(dist.ProcessGroup, method):
                general = getattr(DrilledGroup, method).__wrapped__
                monkeypatch.setattr(DrilledGroup, method, method_of(method, op, names, Given(general)))
    with world_of_one(tmp_path) as rank:
        yield rank


def default_group() -> DrilledGroup:
    group: Any = dist.group.WORLD
    assert isinstance(group, DrilledGroup)
    return group


@dataclass
class Given:
    """Makes what it was given."""

    method: Callable[..., Any]

    def __call__(self, path: object) -> Callable[..., Any]:
        return self.method


@native
def test_the_path_is_a_method_as_any_other(here: Here) -> None:
    assert hot is not None
    method: Any = DrilledGroup.allreduce
    assert isinstance(method, hot.Beaten)
    assert (method.__name__, default_group().allreduce.__name__) == ("allreduce", "allreduce")
    assert "collective.all_reduce" in (inspect.unwrap(method).__doc__ or "")
    assert not isinstance(DrilledGroup.send, hot.Beaten)


def test_calls_are_told_apart_by_all_that_their_records_say(here: Here) -> None:
    for _ in range(2):
        for size, dtype, op in itertools.product((1, 2), (torch.float32, torch.int64), (0, 1)):
            reduction = (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[op]
            dist.all_reduce(torch.ones(size, dtype=dtype), reduction)
            dist.broadcast(torch.ones(size, size, dtype=dtype), 0)
        dist.barrier()
    records = [record for record in here.view if record.step.kind == "collective"]
    assert [record.step.sequence for record in records] == list(range(34))
    told = [(record.step.op, record.step.fingerprint) for record in records]
    assert told[:17] == told[17:]
    assert len(set(told)) == 8 + 4 + 1
    assert told[:4] == [
        ("all_reduce", "float32[1] sum"),
        ("broadcast", "float32[1,1] root=0"),
        ("all_reduce", "float32[1] max"),
        ("broadcast", "float32[1,1] root=0"),
    ]
    assert {record.state for record in records} == {State.ENDED}
    assert default_group().last_used == here.boundary.made.moments.upcoming == 34


def test_tensors_of_many_dimensions_and_of_other_kinds_are_told_right(here: Here) -> None:
    class Own(torch.Tensor):
        pass

    shapes = [(1,) * 7, (1,) * 6 + (2,), (1,) * 5, (1,) * 4 + (2,), (), (0, 3)]
    made = [torch.ones(shape) for shape in shapes] + [torch.ones(3).as_subclass(Own)]
    for _ in range(2):
        for tensor in made:
            dist.all_reduce(tensor)
    records = [record for record in here.view if record.step.kind == "collective"]
    told = [f"float32{str([*tensor.shape]).replace(' ', '')} sum" for tensor in made]
    assert [record.step.fingerprint for record in records] == told * 2


def test_a_timeout_of_a_calls_own_is_on_record(here: Here) -> None:
    needs(Can.SAY_WHO_WAITS)
    group = default_group()
    for timeout, told in ((timedelta(seconds=7), 7000), (None, 30000), (timedelta(milliseconds=250), 250)):
        opts = dist.AllreduceOptions()
        opts.asyncOp = False
        if timeout is not None:
            opts.timeout = timeout
        group.allreduce([torch.ones(1)], opts)
        assert here.view.records[-1].patience_ms == told


def test_only_c10d_is_given_a_handle_to_nothing(here: Here) -> None:
    needs(Can.SAY_WHO_WAITS)
    opts = dist.AllreduceOptions()
    opts.asyncOp = False
    for _ in range(2):  # met for the first time, and known
        work = default_group().allreduce([torch.ones(1)], opts)
        assert isinstance(work, dist.Work)
        assert work.is_completed()
        assert dist.all_reduce(torch.ones(1)) is None
        with c10d._coalescing_manager():
            dist.all_reduce(summed := torch.ones(1))
            dist.all_reduce(torch.ones(2))
        assert summed.item() == 1
    states = {record.state for record in here.view if record.step.kind == "collective"}
    assert states == {State.ENDED}


def test_roots_are_told_apart(here: Here) -> None:
    for root in (0, 1, 0):
        with suppress(RuntimeError, ValueError):  # there is no rank 1
            dist.broadcast(torch.ones(1), root)
    told = [record.step.fingerprint for record in here.view if record.step.op == "broadcast"]
    assert told == ["float32[1] root=0", "float32[1] root=1", "float32[1] root=0"]


def test_a_call_that_is_refused_gives_its_number_back(here: Here) -> None:
    for _ in range(3):  # met for the first time, and known
        with pytest.raises((RuntimeError, ValueError)):
            dist.all_gather([torch.zeros(1), torch.zeros(1)], torch.ones(1))
        assert default_group().sequence.upcoming == 0
        assert here.view.records[-1].state is State.RAISED
        assert here.boundary.open
    dist.all_reduce(torch.ones(2))
    assert here.view.records[-1].step.sequence == 0


def test_a_call_that_fails_later_has_taken_place(here: Here) -> None:
    for number in range(3):
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)  # of floats
        record = here.view.records[-1]
        assert (record.step.sequence, record.state, record.patience_ms) == (number, State.RAISED, 30000)
        assert here.boundary.open


def test_what_the_watch_refuses_is_not_issued(here: Here) -> None:
    needs(Can.SAY_WHO_WAITS)
    group, issued = default_group(), list[int]()

    class Refusing:
        def enter(self, *_: Any) -> None: ...

        def retract(self, group: int, step: Step) -> None:
            issued.append(-step.sequence)

        def bend(self) -> None: ...

        def misread(self, step: Step, shown: str, strides: tuple[int, ...]) -> None: ...

        def overwritten(self, step: Step, shown: str, parts: int) -> None: ...

        def entrance(self, *_: Any) -> Callable[[int], None]:
            def enter(number: int) -> None:
                issued.append(number)
                if number == 2:
                    raise ContractBroken("no", 0)

            return enter

    def step() -> torch.Tensor:
        dist.all_reduce(tensor := torch.ones(1))
        return tensor

    step()
    here.boundary.watch = Refusing()
    step()
    with pytest.raises(ContractBroken):
        step()
    here.boundary.watch = None
    step()
    assert issued == [1, 2, -2]
    assert group.sequence.upcoming == 3
    states = [record.state for record in here.view if record.step.op == "all_reduce"]
    assert states == [State.ENDED, State.ENDED, State.RAISED, State.ENDED]


def test_a_call_in_a_handler_or_of_another_shape_takes_the_general_way(here: Here) -> None:
    needs(Can.SAY_WHO_WAITS)
    group = default_group()
    dist.all_reduce(torch.ones(1))
    try:
        raise ValueError
    except ValueError:
        dist.all_reduce(torch.ones(1))
    opts = dist.AllreduceOptions()
    opts.asyncOp = False
    group.allreduce([torch.ones(1)], opts=opts)
    group.allreduce([torch.ones(1)]).wait()
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    with here.boundary.closed():
        dist.all_reduce(torch.ones(1))
    records = [record for record in here.view if record.step.op == "all_reduce"]
    assert [record.step.sequence for record in records] == list(range(5))
    assert {record.state for record in records} == {State.ENDED}


def test_a_child_of_the_rank_writes_nothing(here: Here) -> None:
    dist.all_reduce(torch.ones(1))
    before = len(here.view.records)
    pid = os.fork()
    if not pid:
        os._exit(1 if here.boundary.open else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(here.view.records) == before


@native
def test_a_stencil_knows_its_thread_after_a_fork() -> None:
    memory, made = ring(4, bytes(222))
    made.begin(0)
    pid = os.fork()
    if not pid:
        made.begin(1)
        thread = int.from_bytes(memory[f.HEADER_BYTES + f.RECORD_BYTES + 40 :][:4], "little")
        os._exit(0 if thread == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
