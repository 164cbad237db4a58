"""Where a plain tensor's sizes, strides and dtype lie is found by looking; tensors of other kinds are no such."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rankdrill.boundary import tensor_seam
from rankdrill.boundary.tensor_seam import MOST_DIMENSIONS, UNKNOWN, tensor_places

WORD = 8


@pytest.fixture(autouse=True)
def _found_anew() -> Iterator[None]:
    tensor_places.cache_clear()
    yield
    tensor_places.cache_clear()


def lying(tensor: torch.Tensor) -> bytes:
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        return tensor_seam._lying_in(memory.fileno(), tensor, tensor_places().pointer)


def is_plain(tensor: torch.Tensor) -> bool:
    return int.from_bytes(lying(tensor)[:WORD], "little") == tensor_places().kind


def sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    there, place = lying(tensor), tensor_places().dimensions
    words = words_from(there, place)
    return tuple(words[1 : 1 + words[0]])


def strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(words_from(lying(tensor), tensor_places().strides)[: tensor.dim()])


def words_from(there: bytes, place: int) -> list[int]:
    return [int.from_bytes(there[at : at + WORD], "little") for at in range(place, len(there) - WORD, WORD)]


def test_it_is_found_in_this_torch() -> None:
    assert tensor_places() != UNKNOWN, "torch lays tensors out in another way: the watch asks for all, and is slower"


def test_what_is_read_is_what_torch_says() -> None:
    base = torch.zeros(6, 4, 3)
    for tensor in (
        base,
        base[1:, ::2],
        base.transpose(0, 2),
        base.expand(9, 6, 4, 3),
        torch.zeros(()),
        torch.zeros(0),
        torch.zeros(1, 2, 3, 4, 5),
        torch.zeros(3, requires_grad=True) * 2,
        torch.from_numpy(torch.zeros(7).numpy()),
    ):
        assert is_plain(tensor)
        assert sizes(tensor) == tuple(tensor.shape)
        assert strides(tensor) == tensor.stride()


def test_a_tensor_that_is_resized_has_its_new_sizes_there() -> None:
    tensor = torch.zeros(2)
    tensor.resize_(5, 3)
    assert sizes(tensor) == (5, 3)
    tensor.data = torch.zeros(4)
    assert sizes(tensor) == (4,)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_tensors_of_other_kinds_are_told_apart() -> None:
    others = [
        torch.zeros(3).to_sparse(),
        torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        torch._to_functional_tensor(torch.zeros(3)),
    ]
    seen: list[bool] = []

    def look(each: torch.Tensor) -> torch.Tensor:
        seen.append(is_plain(each))
        return each

    torch.func.vmap(look)(torch.zeros(2, 3))
    assert not any(map(is_plain, others))
    assert seen == [False]


def test_of_more_dimensions_than_lie_there_the_sizes_are_elsewhere() -> None:
    tensor = torch.zeros([1] * (MOST_DIMENSIONS + 1))
    assert sizes(tensor) != tuple(tensor.shape)


def test_two_places_that_show_it_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    once = tensor_seam._lying_in
    monkeypatch.setattr(tensor_seam, "_LOOKED_AT", 512)
    monkeypatch.setattr(tensor_seam, "_lying_in", lambda *given: once(*given)[:256] * 2)
    assert tensor_places() == UNKNOWN


def test_where_nothing_can_be_read_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(builtins, "open", refuse)
    assert tensor_places() == UNKNOWN


def test_a_pointer_to_no_memory_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread

    def elsewhere(file: int, size: int, at: int) -> bytes:
        return (1 << 40).to_bytes(WORD, "little") if size == WORD else real(file, size, at)

    monkeypatch.setattr(os, "pread", elsewhere)
    assert tensor_places() == UNKNOWN
