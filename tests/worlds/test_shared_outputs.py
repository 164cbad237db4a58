"""One tensor for the parts of several ranks: told before the call, however often its line has been right before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from rankdrill import World
from rankdrill.boundary.shared_outputs import shared_output
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.worlds import Outcome
from tests.torch_can import Can, needs

DEADLINE_S = 60.0
Body = Callable[[], None]


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    with World(3) as world:
        yield world


def found_on(outcome: Outcome) -> Finding:
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.LAYOUT
    return finding


def gathers_into_one() -> None:
    parts = [torch.zeros(2)] * 3
    dist.all_gather(parts, torch.full((2,), float(dist.get_rank())))  # here


def gathers_into_one_in_the_fifth_step() -> None:
    for step in range(8):
        parts = [torch.zeros(2)] * 3 if step == 5 and dist.get_rank() == 1 else [torch.zeros(2) for _ in range(3)]
        dist.all_gather(parts, torch.full((2,), float(step)))  # here


def exchanges_into_one() -> None:
    got = [torch.zeros(1)] * 3
    dist.all_to_all(got, [torch.ones(1) for _ in range(3)])  # here


def gathers_into_one_on_the_root() -> None:
    parts = [torch.zeros(2)] * 3 if dist.get_rank() == 2 else None
    dist.gather(torch.ones(2), parts, dst=2)  # here


def gathers_into_one_later() -> None:
    work = dist.all_gather([torch.zeros(2)] * 3, torch.ones(2), async_op=True)  # here
    assert work is not None
    work.wait()


@pytest.mark.parametrize(
    ("body", "culprits", "call"),
    [
        (gathers_into_one, (0, 1, 2), "all_gather #0"),
        (gathers_into_one_in_the_fifth_step, (1,), "all_gather #5"),
        (exchanges_into_one, (0, 1, 2), "all_to_all #0"),
        (gathers_into_one_on_the_root, (2,), "gather #0"),
        (gathers_into_one_later, (0, 1, 2), "all_gather #0"),
    ],
)
def test_who_gives_it_is_told(three: World, body: Body, culprits: tuple[int, ...], call: str) -> None:
    finding = found_on(three.run(body, deadline=DEADLINE_S))
    assert finding.culprits == culprits
    assert f"{call} on 'default' one float32[" in finding.lines[0]
    assert "for the parts of 3 ranks, of which one is left; make a tensor for each" in finding.lines[0]


def gives_one_to_all() -> None:
    """What is sent may be the same for all, and rows of one tensor lie side by side."""
    mine, same = torch.zeros(2), torch.ones(2)
    for _ in range(3):
        dist.scatter(mine, [same] * 3 if dist.get_rank() == 0 else None, src=0)
        dist.reduce_scatter(mine, [same] * 3)
        dist.all_gather(list(torch.zeros(3, 2)), mine)
    assert mine.tolist() == [3, 3]
    dist.all_gather([torch.zeros(0)] * 3, torch.zeros(0))


def test_what_is_right_passes(three: World) -> None:
    needs(Can.REDUCE_SCATTER)
    three.run(gives_one_to_all, deadline=DEADLINE_S).unwrap()


def test_alone_there_is_one_part() -> None:
    with World(1) as world:
        world.run(lambda: dist.all_gather([torch.zeros(1)], torch.ones(1)), deadline=DEADLINE_S).unwrap()


def test_without_contracts_it_is_as_ever() -> None:
    with World(3, contracts=False) as world:
        world.run(gathers_into_one, deadline=DEADLINE_S).unwrap()


def test_only_tensors_that_lie_somewhere_can_share() -> None:
    whole = torch.zeros(4)
    assert shared_output({"outputs": [[whole[:2], whole[2:]]]}) is None
    assert shared_output({"outputs": [[whole, whole[:2]]]}) is not None, "one begins where the other does"
    assert shared_output({"outputs": [[torch.empty(2, device="meta")] * 2]}) is None
    assert shared_output({"outputs": [[torch.zeros(0)] * 2]}) is None
    with FakeTensorMode():
        assert shared_output({"outputs": [[torch.zeros(2), torch.zeros(2)]]}) is None, "fake ones lie nowhere"
    assert shared_output({"outputs": SimpleNamespace()}) is None
