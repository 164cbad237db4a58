"""Asynchronous calls: one finding for work that nobody waits for and for memory touched too early, none otherwise."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from rankdrill import Plan, World
from rankdrill.diagnosis import Finding, FindingKind, Side
from rankdrill.errors import ContractBroken
from rankdrill.worlds import Outcome, Status, Verdict
from tests.torch_can import Can, needs
from tests.worlds.asynchronous import (
    GIVEN_UP,
    HAZARDS,
    LEAKS,
    TWINS,
    Body,
    forgotten_by_all,
    reads_the_result,
    uses_fsdp,
)
from tests.worlds.conftest import OF_TRAINING

DEADLINE_S = 120.0
EARLY_S = 60.0  # far below the deadline, for any machine
SIZES = (2, 4)


@pytest.fixture(scope="module", params=SIZES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(request.param, preload=OF_TRAINING) as made:
        yield made


@pytest.fixture(scope="module", params=SIZES)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[World, World]]:
    """A world that is watched, and one of the same size that is not."""
    with (
        World(request.param, preload=OF_TRAINING) as watched,
        World(request.param, preload=OF_TRAINING, contracts=False) as plain,
    ):
        yield watched, plain


def name_of(body: Any) -> str:
    return str(getattr(body, "__name__", body))


def marks_of(side: Side) -> set[str]:
    """How the lines that the ranks of `side` were at end."""
    return {linecache.getline(site.file, site.line).rstrip().rpartition("  # ")[2] for site in side.sites if site}


def found_on(outcome: Outcome, kind: FindingKind, culprits: tuple[int, ...]) -> Finding:
    """The one finding of `outcome`, whose first line is that of the mistake."""
    assert not outcome.ok
    assert outcome.elapsed < EARLY_S
    (finding,) = outcome.findings
    assert finding.kind is kind, str(finding)
    assert finding.culprits == outcome.culprits == culprits
    assert finding.sides[0].ranks == culprits
    assert marks_of(finding.sides[0]) == {"odd"}
    assert not set(outcome.victims) & set(culprits)
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    assert str(caught.value.exceptions[0]) == str(finding)
    return finding


@pytest.mark.parametrize("body", LEAKS, ids=name_of)
def test_work_that_nobody_waits_for_is_one_finding(world: World, body: Body) -> None:
    odd = world.n - 1
    outcome = world.run(body, odd, deadline=DEADLINE_S)
    finding = found_on(outcome, FindingKind.REQUEST_LEAK, tuple(range(world.n)) if LEAKS[body] else (odd,))
    assert outcome.verdict is Verdict.BROKEN
    assert finding.sides[0].did.startswith("never waited for ")


@pytest.mark.parametrize("body", GIVEN_UP, ids=name_of)
def test_whoever_waits_for_a_message_that_was_given_up_is_its_victim(world: World, body: Body) -> None:
    odd = world.n - 1
    outcome = world.run(body, odd, deadline=DEADLINE_S)
    finding = found_on(outcome, FindingKind.REQUEST_LEAK, (odd,))
    assert outcome.verdict is Verdict.HANG
    assert finding.sides[0].did == "never waited for isend on 'default'"
    assert finding.sides[1].ranks == (0,)
    assert marks_of(finding.sides[1]) == {"issued"}
    assert 0 in outcome.victims


@pytest.mark.parametrize("body", HAZARDS, ids=name_of)
def test_memory_touched_before_the_wait_is_one_finding(world: World, body: Body) -> None:
    odd = world.n - 1
    argument, by_all = HAZARDS[body]
    outcome = world.run(body, odd, deadline=DEADLINE_S)
    culprits = tuple(range(world.n)) if by_all else (odd,)
    finding = found_on(outcome, FindingKind.INPUT_HAZARD, culprits)
    assert outcome.verdict is Verdict.BROKEN
    assert finding.argument == argument
    assert finding.sides[1].ranks == culprits
    assert marks_of(finding.sides[1]) == {"issued"}
    assert all(isinstance(outcome.ranks[rank].error, ContractBroken) for rank in culprits)


@pytest.mark.parametrize("body", TWINS, ids=name_of)
def test_what_is_right_is_no_finding(both: tuple[World, World], body: Body) -> None:
    if body is uses_fsdp:
        needs(Can.SHARD)
    watched, plain = (world.run(body, world.n - 1, deadline=DEADLINE_S) for world in both)
    assert watched.findings == (), watched.summary()
    assert repr(watched.unwrap()) == repr(plain.unwrap()), "nothing but the time it takes is changed"


def test_nothing_is_left_on_a_thread_that_has_waited(two: World) -> None:
    def body() -> list[bool]:
        tensor, on = torch.ones(2), []
        for _ in range(2):
            work = dist.all_reduce(tensor, async_op=True)
            on.append(torch.overrides.has_torch_function((tensor,)))
            work.wait()
            on.append(torch.overrides.has_torch_function((tensor,)))
        return on

    assert two.run(body).unwrap() == [[True, False, True, False]] * 2


def test_the_report_says_it_in_two_lines(two: World) -> None:
    outcome = two.run(reads_the_result, 0, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    first, second = finding.lines
    call = r"all_reduce #\d+ on 'default'"
    where = r"at \S+asynchronous\.py:\d+ in reads_the_result"
    assert re.fullmatch(
        f"input hazard: ranks 0, 1 read the output of {call} before that was waited for, {where}", first
    )
    assert re.fullmatch(f"ranks 0, 1 issued {call}, {where}", second)


def test_how_many_from_one_line(two: World) -> None:
    def body() -> None:
        for _ in range(50):
            dist.all_reduce(torch.ones(1), async_op=True)

    (finding,) = two.run(body).findings
    (side,) = finding.sides
    assert re.fullmatch(r"never waited for all_reduce #\d+ on 'default', nor for 49 more issued there", side.did)


def test_the_next_run_gets_fresh_ranks(two: World) -> None:
    births = two.births
    assert two.run(lambda: None).ok
    assert not two.run(forgotten_by_all, 0).ok
    assert two.run(lambda: float(dist.get_rank())).unwrap() == [0, 1]
    assert two.births > births


def test_a_rank_that_swallows_it_is_found_all_the_same(two: World) -> None:
    def body() -> None:
        tensor = torch.ones(2)
        work = dist.all_reduce(tensor, async_op=True)
        try:
            tensor.zero_()
        except Exception:
            work.wait()

    outcome = two.run(body)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.INPUT_HAZARD
    assert finding.culprits == (0, 1)
    assert all(rank.status is Status.RETURNED for rank in outcome.ranks)


def test_a_rank_that_raised_speaks_for_itself(two: World) -> None:
    def body() -> None:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        raise ValueError(str(work is None))

    outcome = two.run(body)
    assert outcome.findings == ()
    assert all(isinstance(rank.error, ValueError) for rank in outcome.ranks)


@pytest.mark.parametrize("body", [forgotten_by_all, reads_the_result], ids=name_of)
def test_without_contracts_it_passes_as_it_does_in_production(body: Body) -> None:
    with World(2, contracts=False) as world:
        assert world.run(body, 0).ok


def test_what_a_plan_leads_to_is_no_finding(two: World) -> None:
    def body() -> None:
        try:
            work = dist.all_reduce(torch.ones(2), async_op=True)
            dist.all_reduce(torch.ones(2))
            work.wait()
        except MemoryError:
            dist.all_reduce(torch.ones(2))

    outcome = two.run(body, plan=Plan.parse("rank *: oom at collective.all_reduce #2"))
    assert outcome.findings == (), outcome.summary()
    assert outcome.ok, outcome.summary()


def test_a_functional_result_that_is_returned_is_none_yet(two: World) -> None:
    """To pickle it does not wait for it: what comes out is what was there by then (torch 2.13)."""

    def body() -> Any:
        return funcol.all_reduce(torch.ones(3), "sum", [0, 1])

    def body_that_waits() -> Any:
        return funcol.wait_tensor(body())  # type: ignore[no-untyped-call]

    assert [finding.kind for finding in two.run(body).findings] == [FindingKind.REQUEST_LEAK]
    outcome = two.run(body_that_waits)
    assert not outcome.findings
    assert [value.tolist() for value in outcome.unwrap()] == [[2.0] * 3] * 2


def test_a_functional_result_is_leaked_if_no_rank_uses_it(two: World) -> None:
    def body(users: int) -> None:
        for _ in range(3):
            total = funcol.all_reduce(torch.ones(3), "sum", [0, 1])
            if dist.get_rank() < users:
                assert total.sum() == 6

    assert two.run(body, 2).findings == two.run(body, 1).findings == ()
    (finding,) = two.run(body, 0).findings
    assert finding.kind is FindingKind.REQUEST_LEAK
    assert "never waited for all_reduce #0 on 'default', nor for 2 more issued there" in str(finding)
    assert finding.culprits == (0, 1)
