"""Tensors of every kind, through a frame."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rankdrill.gathers.encoding.wire import decode, encode

NONCE = b"8 bytes!"


def round_trip(value: Any) -> Any:
    return decode(memoryview(encode(value).to_bytearray(NONCE)), NONCE)


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (50, 40)], ids=str)
def test_every_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randint(0, 100, shape).to(dtype)
    got = round_trip(tensor)
    assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(got.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))
    got.zero_()


def test_a_view_ships_its_own_elements() -> None:
    whole = torch.arange(1_000_000)
    assert encode(whole[10:12]).nbytes < 1000
    views = (whole[10:12], whole[::1000], whole.reshape(1000, 1000).T[:3, :5], whole[5].expand(4), whole[:0][::2])
    for view in views:
        assert torch.equal(round_trip(view), view)


def test_conjugates_and_negatives() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(round_trip(tensor.conj()), tensor.conj().resolve_conj())
    assert torch.equal(round_trip(tensor.conj().imag), tensor.conj().imag.resolve_neg())


def test_gradients_wanted_and_parameters() -> None:
    leaf = torch.ones(3, requires_grad=True)
    got, derived, parameter = round_trip((leaf, leaf * 2, torch.nn.Parameter(torch.ones(2), requires_grad=False)))
    assert got.requires_grad
    assert got.is_leaf
    assert derived.requires_grad
    assert type(parameter) is torch.nn.Parameter
    assert not parameter.requires_grad


def test_a_module_and_its_state() -> None:
    module = torch.nn.Linear(40, 30)
    got = round_trip(module)
    assert torch.equal(got.weight, module.weight)
    assert list(round_trip(module.state_dict())) == ["weight", "bias"]
    got(torch.ones(40)).sum().backward()


class Tagged(torch.Tensor):
    """A plain subclass."""


class Reducing(torch.Tensor):
    """A subclass that knows how to pickle itself."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return str, ("its own way",)


def test_subclasses_and_attributes() -> None:
    tagged = torch.ones(3).as_subclass(Tagged)
    tagged.tag = {"a": 1}  # type: ignore[attr-defined]
    got = round_trip(tagged)
    assert type(got) is Tagged
    assert got.tag == {"a": 1}  # type: ignore[attr-defined]
    assert round_trip(torch.ones(3).as_subclass(Reducing)) == "its own way"


def test_what_is_no_block_of_numbers_goes_torchs_way() -> None:
    sparse = torch.eye(5).to_sparse()
    assert torch.equal(round_trip(sparse).to_dense(), torch.eye(5))
    assert round_trip(torch.empty(3, 4, device="meta")).shape == (3, 4)


def test_shared_references_stay_shared_and_others_do_not() -> None:
    tensor = torch.ones(2000)
    same, again, view = round_trip((tensor, tensor, tensor[:1000]))
    assert same is again
    view.zero_()
    assert same.sum() == 2000


def test_a_warning_about_read_only_memory_is_never_given(recwarn: pytest.WarningsRecorder) -> None:
    for size in (1, 10, 10_000):
        round_trip(torch.ones(size)).add_(1)
    assert not recwarn.list
