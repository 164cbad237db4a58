"""Where tensors lie in memory, and whether an access meets what a collective uses: checked element by element."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.boundary.regions import Buffers, buffers_of, extent_of, region_of


def addresses(tensor: torch.Tensor) -> set[int]:
    """Of every byte of `tensor`, element by element."""
    offsets: list[int] = [0]
    for step, count in zip(tensor.stride(), tensor.shape, strict=True):
        offsets = [offset + step * place for offset in offsets for place in range(count)]
    width = tensor.element_size()
    return {tensor.data_ptr() + width * offset + byte for offset in offsets for byte in range(width)}


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    steps=st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 12, 24]), min_size=3, max_size=3, unique=True),
    first=st.integers(0, 20),
    start=st.integers(0, 220),
    length=st.integers(1, 40),
)
def test_an_extent_meets_what_one_of_its_elements_lies_in(
    shape: list[int], steps: list[int], first: int, start: int, length: int
) -> None:
    memory = torch.zeros(256, dtype=torch.int16)
    # As indexing makes them: each row of a dimension lies wholly before the next.
    strides: list[int] = []
    reach = 1
    for count, step in zip(reversed(shape), sorted(steps), strict=False):
        strides.insert(0, max(step, reach) if step else 0)
        reach += strides[0] * (count - 1)
    if first + reach > memory.numel():
        return
    tensor = memory.as_strided(shape, strides, first)
    extent = extent_of(tensor)
    assert extent is not None
    low = memory.data_ptr() + 2 * start
    high = low + 2 * length
    lies_in = any(low <= address < high for address in addresses(tensor))
    assert extent.meets(low, high) is lies_in
    assert extent.end == max(addresses(tensor)) + 1


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0),
        torch.zeros(3, device="meta"),
        torch.sparse_coo_tensor(torch.tensor([[0]]), torch.tensor([1.0]), (3,)),
    ],
    ids=["empty", "meta", "sparse"],
)
def test_what_has_no_memory_of_its_own_meets_nothing(tensor: torch.Tensor) -> None:
    assert extent_of(tensor) is None
    assert region_of(tensor) is None


def test_a_tensor_under_a_transform_has_none() -> None:
    seen: list[Any] = []

    def look(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(extent_of(tensor))
        return tensor

    torch.func.vmap(look)(torch.ones(2, 3))
    assert seen == [None]


def test_a_region_does_not_keep_memory_alive() -> None:
    tensor = torch.ones(1000)
    view = tensor[10:20]
    region = region_of(view)
    assert region is not None
    assert (region.start, region.end) == (view.data_ptr(), view.data_ptr() + 40)
    del view
    assert not region.gone, "the rest of it is still there"
    del tensor
    assert region.gone


def opts(root: int) -> Any:
    made = dist.BroadcastOptions()
    made.rootRank = root
    return made


@pytest.mark.parametrize(
    ("op", "more", "inputs", "outputs"),
    [
        ("all_reduce", {}, 0, 1),
        ("reduce", {"opts": opts(1)}, 0, 1),
        ("broadcast", {"opts": opts(0)}, 1, 0),
        ("broadcast", {"opts": opts(1)}, 0, 1),
        ("send", {"peer": 1}, 1, 0),
        ("recv", {"peer": 1}, 0, 1),
        ("all_gather", {"outputs": [[torch.ones(1), torch.ones(1)]]}, 1, 2),
        ("reduce_scatter_tensor", {"outputs": torch.ones(2)}, 1, 1),
        ("all_to_all_single", {"outputs": torch.ones(2)}, 1, 1),
    ],
)
def test_what_is_read_and_what_is_written(op: str, more: dict[str, Any], inputs: int, outputs: int) -> None:
    buffers = buffers_of(op, {"tensors": [torch.ones(2)], **more}, 0)
    assert (len(buffers.inputs), len(buffers.outputs)) == (inputs, outputs)


def test_a_barrier_uses_no_memory() -> None:
    assert buffers_of("barrier", {"opts": dist.BarrierOptions()}, 0) == Buffers()
