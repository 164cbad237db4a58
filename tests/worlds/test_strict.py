"""Worlds that are strict: each group that the body makes it has to destroy, be it the only one."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.errors import UsageError

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def strict() -> Iterator[World]:
    with World(2, contracts="strict", preload=["torch.nn.parallel"]) as world:
        yield world


def keeps_one() -> None:
    group = dist.new_group()  # made
    dist.all_reduce(torch.ones(1), group=group)


def keeps_one_of_two() -> None:
    first = dist.new_group()
    second = dist.new_group()  # made
    dist.barrier(first)
    dist.barrier(second)
    dist.destroy_process_group(first)


def keeps_a_mesh() -> None:
    mesh = init_device_mesh("cpu", (1, dist.get_world_size()))  # made
    dist.barrier(mesh.get_group(1))


def keeps_several() -> None:
    for _ in range(3):
        dist.barrier(dist.new_group())  # made


def ends_as_it_began() -> None:
    group = dist.new_group()
    dist.barrier(group)
    dist.destroy_process_group(group)


def ends_all() -> None:
    dist.barrier(dist.new_group())
    dist.destroy_process_group()


def has_a_library_make_one() -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()


@pytest.mark.parametrize("body", [keeps_one, keeps_one_of_two, keeps_a_mesh, keeps_several])
def test_each_that_is_kept_is_told(strict: World, body: Any) -> None:
    outcome = strict.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.LEAKED_GROUP, (0, 1))
    sites = [site for side in finding.sides for site in side.sites if site is not None]
    assert sites
    assert all(linecache.getline(site.file, site.line).rstrip().endswith("# made") for site in sites)
    assert not outcome.ok


@pytest.mark.parametrize("body", [ends_as_it_began, ends_all, has_a_library_make_one])
def test_who_destroys_what_it_made_is_right(strict: World, body: Any) -> None:
    strict.run(body, deadline=DEADLINE_S).unwrap()


def test_the_next_run_does_not_hear_of_it(strict: World) -> None:
    assert strict.run(keeps_one, deadline=DEADLINE_S).findings
    strict.run(ends_as_it_began, deadline=DEADLINE_S).unwrap()


def test_what_a_reader_is_told(strict: World) -> None:
    (finding,) = strict.run(keeps_one, deadline=DEADLINE_S).findings
    (line,) = finding.lines
    assert line.startswith("leaked group: ranks 0, 1 made a group of ranks 0, 1, and never destroyed it, at ")
    assert line.endswith(" in keeps_one")


def test_the_one_that_keeps_it_is_the_culprit(strict: World) -> None:
    def body() -> None:
        group = dist.new_group()
        dist.barrier(group)
        if dist.get_rank() == 1:
            dist.destroy_process_group(group)

    (finding,) = strict.run(body, deadline=DEADLINE_S).findings
    assert finding.culprits == (0,)


def test_by_default_nobody_minds(two: World) -> None:
    for body in (keeps_one, keeps_one_of_two, keeps_a_mesh, keeps_several):
        two.run(body, deadline=DEADLINE_S).unwrap()


def test_another_word_is_refused() -> None:
    with pytest.raises(UsageError, match="contracts='always' is not known; choose from True, False, \"strict\""):
        World(2, contracts="always")  # type: ignore[arg-type]
