"""Two groups that ranks come to in two orders: each side is told with the line it waits at, and with its other one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 20.0


def pair() -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    return dist.new_group([0, 1]), dist.new_group([0, 1])


def in_two_branches() -> None:
    one, other = pair()
    x = torch.ones(2)
    if dist.get_rank() == 0:
        dist.all_reduce(x, group=one)  # 0 first
        dist.all_reduce(x, group=other)  # 0 then
    else:
        dist.all_reduce(x, group=other)  # 1 first
        dist.all_reduce(x, group=one)  # 1 then


def reduced(x: torch.Tensor, group: dist.ProcessGroup) -> None:
    dist.all_reduce(x, group=group)


def by_a_helper() -> None:
    one, other = pair()
    x = torch.ones(2)
    if dist.get_rank() == 0:
        reduced(x, one)  # 0 first
        reduced(x, other)  # 0 then
    else:
        reduced(x, other)  # 1 first
        reduced(x, one)  # 1 then


def by_two_functions() -> None:
    one, other = pair()
    x = torch.ones(2)

    def weights() -> None:
        dist.broadcast(x, 0, group=one)

    def loss() -> None:
        dist.all_reduce(x, group=other)

    if dist.get_rank() == 0:
        weights()  # 0 first
        loss()  # 0 then
    else:
        loss()  # 1 first
        weights()  # 1 then


def lines_of(body: Callable[[], None]) -> dict[str, int]:
    """The numbers of the lines that carry a mark, by the mark."""
    lines, first = inspect.getsourcelines(body)
    marked = (line.partition("  # ")[2].strip() for line in lines)
    return {mark: first + at for at, mark in enumerate(marked) if mark}


@pytest.mark.parametrize("body", [in_two_branches, by_a_helper, by_two_functions])
def test_each_side_is_told_with_its_two_lines(two: World, body: Callable[[], None]) -> None:
    outcome = two.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind in (FindingKind.DEADLOCK, FindingKind.CALL_ORDERING)
    marked = lines_of(body)
    told = [line for line in finding.lines if "waits in" in line]
    fields = json.loads(outcome.to_json())["findings"][0]["sides"]
    for rank, (side, line) in enumerate(zip(fields, told, strict=True)):
        assert f"rank {rank} waits in" in line
        assert f".py:{marked[f'{rank} first']} in " in line
        assert line.endswith(
            f", and would come to the other's only at {__name__.replace('.', '/')}.py:{marked[f'{rank} then']}"
        )
        assert side["ahead"]["line"] == marked[f"{rank} then"]


def test_what_the_source_does_not_show_is_not_told(two: World) -> None:
    """From one line, in the order of a list that is another on each rank."""

    def body() -> None:
        groups = list(pair())
        for group in groups if dist.get_rank() else reversed(groups):
            dist.all_reduce(torch.ones(2), group=group)

    (finding,) = two.run(body, deadline=DEADLINE_S).findings
    assert finding.kind is FindingKind.DEADLOCK
    assert [side.ahead for side in finding.sides] == [None, None]
    assert "would come" not in str(finding)
