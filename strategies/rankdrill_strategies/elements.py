"""Tensors and arrays, compared by what can be seen of them: dtype, shape, bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rankdrill.errors import UsageError

__all__ = ["Pair", "compare_arrays", "compare_masked", "compare_tensors", "tensor_bits"]


class Pair(NamedTuple):
    """Two objects still to be compared, and the way there."""

    path: str
    left: Any
    right: Any


def compare_arrays(path: str, left: Any, right: Any) -> str | list[Pair]:
    """What tells two arrays (or numpy scalars) apart; else the objects in them, still to be compared."""
    if _native(left.dtype) != _native(right.dtype):
        return f"{path}: array dtype {left.dtype} != {right.dtype}"
    if left.shape != right.shape:
        return f"{path}: array shape {left.shape} != {right.shape}"
    import numpy

    return _compare_arrays(path, numpy.asarray(left), numpy.asarray(right))


def compare_masked(path: str, left: Any, right: Any) -> list[Pair]:
    """Masked arrays by what is in them, what is masked, and what stands for it; the masked elements count too."""
    import numpy

    held = [Pair(f"{path}.data", numpy.ma.getdata(left), numpy.ma.getdata(right))]
    # Not by what they say when pickled: that tells whether anyone has ever asked for the mask or the fill value.
    held.append(Pair(f"{path}.mask", numpy.ma.getmaskarray(left), numpy.ma.getmaskarray(right)))
    return [*held, *(Pair(f"{path}.{name}", getattr(left, name), getattr(right, name)) for name in _OF_MASKED)]


_OF_MASKED = ("fill_value", "hardmask")


def _native(dtype: Any) -> Any:
    """`dtype` in this machine's byte order; strings of variable width have none and refuse to be asked."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


def _compare_arrays(path: str, left: Any, right: Any) -> str | list[Pair]:
    import numpy

    if left.dtype.names is not None:
        held: list[Pair] = []
        for name in left.dtype.names:
            found = _compare_arrays(f"{path}[{name!r}]", left[name], right[name])
            if isinstance(found, str):
                return found
            held += found
        return held
    if left.dtype.kind in "OT":
        return [Pair(_at(path, index), left[index], right[index]) for index in numpy.ndindex(left.shape)]
    return _first_difference(path, "array", left, right, _differing(left, right)) or []


def _differing(left: Any, right: Any) -> Any:
    """A mask of the elements that differ; NaN is NaN whatever its sign and payload."""
    import numpy

    kind = left.dtype.kind
    if kind == "c":
        return _differing(left.real, right.real) | _differing(left.imag, right.imag)
    if kind in "mM":
        return left.astype("i8") != right.astype("i8")  # NaT differs from itself
    if kind == "V":  # numpy compares void only where it has no zero bytes at the end
        raw = numpy.array([a.tobytes() != b.tobytes() for a, b in zip(left.flat, right.flat, strict=True)], bool)
        return raw.reshape(left.shape)
    if kind != "f":
        return left != right
    with numpy.errstate(all="ignore"):  # comparing a signalling NaN signals
        both_nan = numpy.isnan(left) & numpy.isnan(right)
        return ~(((left == right) & (numpy.signbit(left) == numpy.signbit(right))) | both_nan)


def compare_tensors(path: str, left: Any, right: Any) -> str | list[Pair]:
    """What tells two tensors apart; else what they are made of and their attributes, still to be compared.

    Raises `UsageError` for tensors whose elements torch does not hand out.
    """
    for trait in ("is_nested", "dtype", "shape", "requires_grad", "layout"):
        if trait == "shape" and left.is_nested:
            continue  # it has none, or one with a symbol, another one in each tensor
        ours, theirs = getattr(left, trait), getattr(right, trait)
        if ours != theirs:
            return f"{path}: tensor {trait} {_plain(ours)} != {_plain(theirs)}"
    if left.device.type != right.device.type:
        return f"{path}: tensor device {left.device.type} != {right.device.type}"
    held = [Pair(f"{path}.__dict__", left.__dict__, right.__dict__)] if left.__dict__ or right.__dict__ else []
    try:
        if str(left.layout) == "torch.jagged":
            return _made_of(path, left, right)  # attributes are its own, caches among them
        if str(left.layout) != "torch.strided" or left.is_quantized or left.is_nested:
            return _made_of(path, left, right) + held
        return _compare_strided(path, left.detach(), right.detach()) or held
    except RuntimeError as error:  # NotImplementedError is one
        what = f"{_plain(left.layout)} {_plain(left.dtype)} tensors"
        raise UsageError(f"{path}: cannot compare {what}; compare what they are made of ({error})") from error


def _made_of(path: str, left: Any, right: Any) -> list[Pair]:
    """The parts, from first to last, of two tensors of one layout; still to be compared."""
    left, right = left.detach(), right.detach()
    held = []
    for part in _parts_of(left):
        ours, theirs = getattr(left, part), getattr(right, part)
        if callable(ours):
            held.append(Pair(f"{path}.{part}()", ours(), theirs()))
        else:
            held.append(Pair(f"{path}.{part}", ours, theirs))
    return held


def _parts_of(tensor: Any) -> tuple[str, ...]:
    import torch

    if tensor.is_quantized:
        whole = tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
        return ("int_repr", "qscheme", *(_OF_SCALE if whole else _OF_SCALES))
    layout = str(tensor.layout)
    if layout not in _OF_LAYOUT:
        raise RuntimeError(f"nothing is known of {layout}")
    return _OF_LAYOUT[layout]


_OF_SCALE = ("q_scale", "q_zero_point")
_OF_SCALES = ("q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points")
_OF_LAYOUT = {
    "torch.strided": ("unbind",),  # a nested one: no other comes here
    "torch.jagged": ("values", "offsets", "lengths", "_ragged_idx"),
    "torch._mkldnn": ("to_dense",),
    "torch.sparse_coo": ("_indices", "_values"),
    **dict.fromkeys(("torch.sparse_csr", "torch.sparse_bsr"), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys(("torch.sparse_csc", "torch.sparse_bsc"), ("ccol_indices", "row_indices", "values")),
}


def _compare_strided(path: str, left: Any, right: Any) -> str | None:
    import torch

    if left.device.type == "meta":
        return None  # no elements
    left, right = left.cpu().resolve_conj().resolve_neg(), right.cpu().resolve_conj().resolve_neg()
    differing = tensor_bits(left) != tensor_bits(right)
    if left.dtype.is_complex:
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    if left.dtype.is_floating_point and differing.any():
        differing &= ~(left.isnan() & right.isnan())
    return _first_difference(path, "tensor", left, right, differing.numpy())


def tensor_bits(tensor: Any) -> Any:
    """The same memory as integers; complex numbers get a last dimension of 2."""
    import torch

    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize])


def _first_difference(path: str, what: str, left: Any, right: Any, differing: Any) -> str | None:
    import numpy

    places = numpy.argwhere(differing)
    if not len(places):
        return None
    index = tuple(int(number) for number in places[0])
    try:
        values = f"{left[index].item()!r} != {right[index].item()!r}"
    except RuntimeError:  # float4: torch can hold it and not read it
        values = "other bits"
    where = f" at {_at('', index)}" if index else ""
    return f"{path}: {what} differs{where}: {values} ({len(places)} of {differing.size} elements)"


def _at(path: str, index: Iterable[int]) -> str:
    return f"{path}[{', '.join(map(str, index))}]"


def _plain(trait: Any) -> str:
    """``float32``, ``(2, 3)``: without torch's decoration."""
    return str(tuple(trait)) if isinstance(trait, tuple) else str(trait).removeprefix("torch.")
