"""By what a call is found again: whether its tensors are contiguous, and however many others were made meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.boundary.beaten import way_of
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.native import hot
from tests.faults.here import Here, world_of_one

pytestmark = pytest.mark.skipif(hot is None, reason="there is no such module here")
MORE_THAN_ARE_KEPT = 100


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with world_of_one(tmp_path) as rank:
        yield rank


def group() -> DrilledGroup:
    found: Any = dist.group.WORLD
    assert isinstance(found, DrilledGroup)
    return found


def laid_out_variously() -> Iterator[torch.Tensor]:
    for shape in itertools.product((0, 1, 2, 3), repeat=3):
        yield torch.zeros(shape)
        for order in itertools.permutations(range(3)):
            yield torch.zeros(shape).permute(order)
    base = torch.zeros(6, 4, 5)
    yield from (base[::2], base[:, 1:2], base[1:2, ::2], base[2], base[:, :, 0], base[0, 0, 1:4], base[0, 0, ::3])
    yield from (torch.zeros(1).expand(4), torch.zeros(2, 1).expand(2, 3), torch.zeros(()), torch.zeros(3)[1:1])


def test_a_call_has_a_key_where_torch_calls_its_tensor_contiguous(here: Here) -> None:
    dist.barrier()  # the first call of a group is on no such path
    keys = group().repertoire.by_key
    for tensor in laid_out_variously():
        keys.clear()
        group().way = way_of(group())  # which has met no call yet
        dist.all_reduce(tensor)
        assert bool(keys) is tensor.is_contiguous(), (tensor.shape, tensor.stride())


def test_more_kinds_of_calls_than_are_kept_are_told_right_in_any_order(here: Here) -> None:
    sizes = [*range(1, MORE_THAN_ARE_KEPT), *range(MORE_THAN_ARE_KEPT, 0, -1), *range(1, MORE_THAN_ARE_KEPT, 7)]
    for size in sizes:
        dist.all_reduce(torch.ones(size))
        dist.all_gather([torch.ones(size)], torch.ones(size))
    told = [(record.step.op, record.step.fingerprint) for record in here.view if record.step.kind == "collective"][1:]
    expected = ([("all_reduce", f"float32[{size}] sum"), ("all_gather", f"float32[{size}]")] for size in sizes)
    assert told == [each for pair in expected for each in pair][-len(told) :]
    assert len(told) > MORE_THAN_ARE_KEPT
