"""Worlds compare what ranks do in their collectives: one finding for each mistake, none for what is right."""

from __future__ import annotations

import linecache
import os
import pickle
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Side
from rankdrill.errors import ContractBroken, RankVictim
from rankdrill.faults import Plan
from rankdrill.step import Site
from rankdrill.worlds import Status, Verdict
from tests.torch_can import Can, needs
from tests.worlds.conftest import OF_TRAINING
from tests.worlds.mistakes import MISTAKES, TWINS, Body, uneven_chunks_reduced

DEADLINE_S = 60.0
EARLY_S = 20.0  # far below the deadline, for any machine
SIZES = (2, 4)
LARGE = 24


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(request.param, preload=OF_TRAINING) as made:
        made.run(dist.barrier).unwrap()  # on a busy machine a template may take as long to start as a verdict may take
        yield made


def name_of(body: Any) -> str:
    return str(getattr(body, "__name__", body))


def lines_of(side: Side) -> set[str]:
    """How the lines that the ranks of `side` were at end."""
    assert all(isinstance(site, Site) for site in side.sites)
    return {linecache.getline(site.file, site.line).rstrip().rpartition("  # ")[2] for site in side.sites if site}


def in_worlds(bodies: Sequence[Body]) -> pytest.MarkDecorator:
    """Each in small worlds, the first and the last in a large one too; the others there at night."""
    always = (bodies[0], bodies[-1])
    small = [pytest.param(size, body) for size in SIZES for body in bodies]
    nightly = pytest.mark.nightly
    large = [pytest.param(LARGE, body, marks=() if body in always else nightly) for body in bodies]
    return pytest.mark.parametrize(("world", "body"), [*small, *large], indirect=["world"], ids=name_of, scope="module")


@in_worlds(list(MISTAKES))
def test_a_mistake_is_one_finding(world: World, body: Body) -> None:
    odd = world.n - 1
    kind, argument = MISTAKES[body]
    outcome = world.run(body, odd, deadline=DEADLINE_S)
    assert not outcome.ok
    assert outcome.elapsed < EARLY_S
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument) == (kind, argument)
    assert outcome.verdict is (Verdict.HANG if argument == "group" else Verdict.BROKEN)
    first, second = finding.sides
    if world.n == 2:
        assert finding.culprits == (), "one against one: nobody can say who is right"
        assert outcome.culprits == (0, 1)
        assert outcome.victims == ()
        assert lines_of(first) | lines_of(second) == {"odd", "most"}
    else:
        assert finding.culprits == outcome.culprits == (odd,)
        assert odd not in outcome.victims
        assert first.ranks == (odd,)
        assert lines_of(first) == {"odd"}
        assert lines_of(second) == {"most"}
        assert str(finding).startswith(f"{kind}: rank {odd} ")


@in_worlds(TWINS)
def test_what_is_right_is_no_finding(world: World, body: Body) -> None:
    if body is uneven_chunks_reduced:
        needs(Can.REDUCE_SCATTER)
    outcome = world.run(body, world.n - 1, deadline=DEADLINE_S)
    assert outcome.findings == (), outcome.summary()
    assert len({repr(value) for value in outcome.unwrap()}) == 1 or body.__name__ == "gathered_and_scattered"


@pytest.mark.parametrize("odd", [0, 1, 2, 3])
@pytest.mark.parametrize("last", [False, True])
def test_whoever_comes_last_the_odd_one_is_at_fault(four: World, odd: int, last: bool) -> None:
    def body() -> None:
        if (dist.get_rank() == odd) is last:
            time.sleep(0.1)
        dist.all_reduce(torch.ones(3 if dist.get_rank() == odd else 4))

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (odd,)
    (finding,) = outcome.findings
    assert finding.sides[1].ranks == tuple(rank for rank in range(4) if rank != odd)


def test_two_against_two_disagree(four: World) -> None:
    def body() -> None:
        dist.all_reduce(torch.ones(1 + dist.get_rank() // 2))

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.culprits == ()
    assert [side.ranks for side in finding.sides] == [(0, 1), (2, 3)]
    assert "nobody in the majority" in outcome.summary()
    assert outcome.culprits == (0, 1, 2, 3)


def test_who_has_not_come_is_not_counted_as_agreeing(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == 2:
            time.sleep(0.2)  # whoever notices ends the run: the other two have come by then
        if dist.get_rank() < 3:
            dist.all_reduce(torch.ones(2 if dist.get_rank() == 2 else 3))

    # Two of four are no majority: the fourth might have sided with the third.
    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert finding.culprits == ()
    assert sorted(rank for side in finding.sides for rank in side.ranks) == [0, 1, 2]


def test_the_public_function_is_named(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == 1:
            dist.barrier()
        else:
            dist.all_gather_object([None] * 4, "x")

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (1,)
    assert "enter all_gather_object's all_gather #" in outcome.summary()


def test_tensors_where_the_others_gather_objects_are_another_call_though_both_are_an_all_gather(four: World) -> None:
    def body() -> None:
        for step in range(3):
            if (dist.get_rank(), step) == (2, 1):
                dist.all_gather([torch.ones(3, dtype=torch.int64) for _ in range(4)], torch.ones(3, dtype=torch.int64))
            else:
                dist.gather_object("x", [None] * 4 if dist.get_rank() == 1 else None, dst=1)

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == ("call ordering", (2,))
    assert finding.sides[-1].did.startswith("enter gather_object's all_gather #")


def test_what_ddp_issues_is_put_down_to_backward(four: World) -> None:
    def body() -> None:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        for _ in range(3 if dist.get_rank() == 3 else 2):
            model(torch.ones(1, 2)).sum().backward()
        dist.barrier()

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (3,)
    (finding,) = outcome.findings
    assert finding.kind == "extra call"
    assert "rank 3 makes one call more, DDP bucket 0's all_reduce" in str(finding)


def test_the_error_is_a_broken_contract_and_says_it_all(four: World) -> None:
    outcome = four.run(next(iter(MISTAKES)), 2, deadline=DEADLINE_S)
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    broken, *victims = caught.value.exceptions
    assert isinstance(broken, ContractBroken)
    assert broken.rank == 2
    assert all(isinstance(victim, RankVictim) for victim in victims)
    assert outcome.summary().startswith("broken contract: call ordering: rank 2 enters all_reduce #1 on 'default', at ")
    noticed = [rank for rank in outcome.ranks if isinstance(rank.error, ContractBroken)]
    assert noticed, "raised on a rank too, before the backend saw its call"


def test_the_next_run_gets_fresh_ranks(four: World) -> None:
    births = four.births
    assert not four.run(next(iter(MISTAKES)), 2, deadline=DEADLINE_S).ok
    assert four.run(TWINS[0], 2).ok
    assert four.births > births


def test_who_swallows_it_is_found_out_all_the_same(four: World) -> None:
    def body() -> None:
        try:
            dist.all_reduce(torch.ones(1 + dist.get_rank() % 3 // 2))
        except Exception:
            time.sleep(1000)

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < EARLY_S
    assert outcome.culprits == (2,)


def test_without_contracts_the_backend_does_what_it_does() -> None:
    with World(2, contracts=False) as two:
        outcome = two.run(sums_of_different_ops)
        assert outcome.ok, "gloo adds up garbage and says nothing"
        assert outcome.findings == ()


def sums_of_different_ops() -> list[float]:
    tensor = torch.ones(2)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM)
    return list(tensor.tolist())


@pytest.mark.parametrize(
    "fault",
    [
        "rank 1: wrong_op at collective.all_reduce",
        "rank 1: wrong_dtype at collective.all_reduce",
        "rank 1: skip at collective.all_reduce #1",
        "rank 1: swap at collective.all_reduce #1",
    ],
)
def test_what_the_plan_bent_is_no_finding(four: World, fault: str) -> None:
    def body() -> None:
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
        if dist.get_rank() == 1:
            dist.all_reduce(torch.ones(4))

    def plain() -> None:
        for _ in range(3):
            dist.all_reduce(torch.ones(4))

    outcome = four.run(body if "skip" in fault else plain, plan=Plan.parse(fault), deadline=5)
    assert outcome.findings == (), outcome.summary()
    assert not any(isinstance(rank.error, ContractBroken) for rank in outcome.ranks)


def test_before_the_plan_strikes_a_mistake_is_found(four: World) -> None:
    def body() -> None:
        dist.all_reduce(torch.ones(1 + dist.get_rank() // 3))
        dist.barrier()

    outcome = four.run(body, plan=Plan.parse("rank 1: skip at collective.barrier"), deadline=DEADLINE_S)
    assert outcome.culprits == (3,)


def test_a_rank_killed_before_it_looked_leaves_a_true_verdict(four: World) -> None:
    def body() -> None:
        if dist.get_rank() == 3:
            os._exit(3)
        dist.all_reduce(torch.ones(2))

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.findings == ()
    assert outcome.culprits == (3,)
    assert outcome.ranks[3].status is Status.DIED


def test_a_finding_is_data(four: World) -> None:
    (finding,) = four.run(next(iter(MISTAKES)), 1, deadline=DEADLINE_S).findings
    again = pickle.loads(pickle.dumps(finding))
    assert again == finding
    assert finding.step == "broadcast #1 on 'default'"


def test_ranks_that_a_body_numbers_its_own_way_are_left_alone() -> None:
    def body(directory: str) -> float:
        index = int(os.environ["RANK"])
        store = dist.FileStore(f"{directory}/store", 4)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=3 - index, world_size=4)
        # Uneven to the eye of one that takes index for rank.
        sends = [1 if member == 0 else 2 for member in range(4)] if dist.get_rank() == 3 else [2] * 4
        tensor = torch.ones(sum(sends))
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()
        return float(tensor.numel())

    with tempfile.TemporaryDirectory() as directory, World(4, init=False) as world:
        assert world.run(body, directory, deadline=DEADLINE_S).unwrap() == [7.0, 8.0, 8.0, 8.0]


def test_two_jobs_in_one_world_are_two(four: World) -> None:
    """Ranks 0, 1 and ranks 2, 3 make a default group each, of the same name and ranks, and do different things."""

    def body(directory: str) -> float:
        index = int(os.environ["RANK"])
        store = dist.FileStore(f"{directory}/store{index // 2}", 2)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=index % 2, world_size=2)
        tensor = torch.ones(1 + index // 2)
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        return float(tensor.sum())

    with tempfile.TemporaryDirectory() as directory, World(4, init=False) as world:
        assert world.run(body, directory, deadline=DEADLINE_S).unwrap() == [2.0, 2.0, 4.0, 4.0]
