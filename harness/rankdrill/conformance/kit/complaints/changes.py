"""What was done to a value on its way, as far as what came is like what was sent: cut, cast, sorted, turned."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch

from rankdrill.conformance.exact import difference, plain, shown

__all__ = ["begins_with", "how_alike", "length_of", "of_other_types"]

_ARRAYS = torch.Tensor | numpy.ndarray
_MOST_ITEMS = 3  # that are told of those that are too many or too few
_OF_32_BITS = 2.0**-22  # as a share: what a few numbers of 24 bits can be off when they are added up
_TEXTS = str | bytes | bytearray


def length_of(value: Any) -> int | None:
    """How many items `value` has, rows if it is a tensor; None of what has none, and of dicts, which have no order."""
    if isinstance(value, _ARRAYS):
        return int(value.shape[0]) if value.ndim else None
    return len(value) if isinstance(value, _TEXTS | list | tuple) else None


def begins_with(longer: Any, shorter: Any) -> bool:
    """Whether `longer` is `shorter` and more of the same, in any dimension of a tensor."""
    if isinstance(longer, _ARRAYS) and isinstance(shorter, _ARRAYS):
        if longer.ndim != shorter.ndim or any(
            more < less for more, less in zip(longer.shape, shorter.shape, strict=True)
        ):
            return False
        return difference(longer[tuple(map(slice, shorter.shape))], shorter) is None
    if length_of(longer) is None or length_of(shorter) is None or type(longer) is not type(shorter):
        return False
    return difference(longer[: len(shorter)], shorter) is None


def of_other_types(got: Any, wanted: Any) -> str:
    """Which types came for which, where the values are the same nevertheless; empty where they are not."""
    if difference(plain(got), plain(wanted), ordered=False) is not None:
        return ""
    kinds = next(_other_kinds(got, wanted), None)
    return f"{kinds[0]} for {kinds[1]}" if kinds is not None else ""


def how_alike(got: Any, wanted: Any) -> str:
    """What was done to the part of `wanted` that is first found changed; empty where nobody can say."""
    got, wanted = _first_changed(got, wanted)
    if types := of_other_types(got, wanted):
        return f"right, but {types}"
    told: Iterator[str] = iter(())
    match wanted:
        case str():
            told = _of_text(got, wanted)
        case torch.Tensor() | numpy.ndarray():
            told = _of_arrays(got, wanted)
        case Mapping():
            told = _of_mappings(got, wanted)
        case int() | float():
            told = _of_numbers(got, wanted)
    return next(itertools.chain(told, _of_lengths(got, wanted), _of_items(got, wanted)), "")


def _first_changed(got: Any, wanted: Any) -> tuple[Any, Any]:
    """The innermost pair of values that differ, where both have the same items by place or by key."""
    if type(got) is not type(wanted):
        return got, wanted
    pairs: list[tuple[Any, Any]] = []
    if isinstance(wanted, Mapping) and got.keys() == wanted.keys():
        pairs = [(got[key], wanted[key]) for key in wanted]
    elif isinstance(wanted, list | tuple) and len(got) == len(wanted):
        pairs = list(zip(got, wanted, strict=True))
    changed = next((pair for pair in pairs if difference(*pair) is not None), None)
    return _first_changed(*changed) if changed is not None else (got, wanted)


def _other_kinds(got: Any, wanted: Any) -> Iterator[tuple[str, str]]:
    """Pairs of types that differ, the outermost first."""
    if (kinds := (_kind(got), _kind(wanted)))[0] != kinds[1]:
        yield kinds
    elif isinstance(wanted, Mapping):
        yield from itertools.chain.from_iterable(_other_kinds(got[key], wanted[key]) for key in wanted)
    elif isinstance(wanted, list | tuple):
        yield from itertools.chain.from_iterable(map(_other_kinds, got, wanted))
    elif isinstance(wanted, torch.Tensor) and got.requires_grad is not wanted.requires_grad:
        yield ("one without a gradient", "one with") if wanted.requires_grad else ("one with a gradient", "one without")


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, numpy.ndarray):
        return f"an array of {value.dtype}"
    return type(value).__name__


def _of_text(got: Any, wanted: str) -> Iterator[str]:
    if not isinstance(got, str):
        return
    for coding, handling in itertools.product(("ascii", "latin-1"), ("replace", "ignore", "backslashreplace")):
        if got == wanted.encode(coding, handling).decode(coding):
            yield f"the text without what {coding} does not have"
    if got == wanted.encode().decode("latin-1"):
        yield "its UTF-8 read as latin-1"


def _of_arrays(got: Any, wanted: Any) -> Iterator[str]:
    if type(got) is not type(wanted):
        return
    mine, its = got.reshape(-1).tolist(), wanted.reshape(-1).tolist()
    if mine == its:
        yield f"right, but of shape {tuple(got.shape)}, not {tuple(wanted.shape)}"
    if got.ndim == wanted.ndim == 2 and got.shape == wanted.T.shape and difference(got.T, wanted) is None:
        yield "right, but transposed"
    if len(mine) == len(its) and sorted(map(str, mine)) == sorted(map(str, its)):
        yield "the right numbers in another order"
    if got.dtype != wanted.dtype and mine == _cast(wanted, got.dtype):
        yield f"what {_kind(got)} can hold of it"
    if mine and not any(mine):
        yield "nothing but zeros"


def _cast(array: Any, dtype: Any) -> Any:
    cast = array.to(dtype) if isinstance(array, torch.Tensor) else array.astype(dtype)
    return cast.reshape(-1).tolist()


def _of_mappings(got: Any, wanted: Mapping[Any, Any]) -> Iterator[str]:
    if not isinstance(got, Mapping):
        return
    if list(got) == list(map(str, wanted)) and list(got) != list(wanted):
        yield "right, but with keys that have become text"
    as_sorted = {key: wanted[key] for key in sorted(wanted, key=str)}
    if difference(dict(got), as_sorted) is None:
        yield "right, but with its keys sorted"
    if got.keys() != wanted.keys() and list(got.values()) == list(wanted.values()):
        yield "the right values under other keys"


def _of_numbers(got: Any, wanted: float) -> Iterator[str]:
    if not isinstance(got, int | float):
        return
    if isinstance(wanted, float) and got == float(numpy.float32(wanted)):
        yield "what a float of 32 bits can hold of it"
    if isinstance(wanted, int) and abs(wanted) < 1 << 200 and got == float(wanted):
        yield "what a float can hold of it"
    if isinstance(wanted, int) and isinstance(got, int) and got in _wrapped(wanted):
        yield "what is left of it in fewer bits"
    if wanted and abs(got - wanted) <= abs(wanted) * _OF_32_BITS:
        yield "right to seven digits, as many as a float of 32 bits has"


def _wrapped(number: int) -> Sequence[int]:
    return [(number + sign) % (1 << bits) - sign for bits in (8, 16, 32, 64) for sign in (0, 1 << (bits - 1))]


def _of_items(got: Any, wanted: Any) -> Iterator[str]:
    """That some items came that are not wanted, or some did not come, and all others are right."""
    if type(got) is not type(wanted) or not isinstance(wanted, list | tuple) or len(got) == len(wanted):
        return
    longer, shorter = (got, wanted) if len(got) > len(wanted) else (wanted, got)
    rest = list(shorter)
    besides = []
    for item in longer:
        if rest and difference(item, rest[0]) is None:
            rest.pop(0)
        else:
            besides.append(item)
    if not rest:
        items = f"{', '.join(map(shown, besides[:_MOST_ITEMS]))}{', …' if len(besides) > _MOST_ITEMS else ''}"
        yield f"right, {'with' if longer is got else 'but without'} {items}"


def _of_lengths(got: Any, wanted: Any) -> Iterator[str]:
    mine, its = length_of(got), length_of(wanted)
    if mine is None or its is None or mine == its:
        return
    if begins_with(wanted, got):
        yield f"the first {mine} of {its}, and the rest is cut off"
    if begins_with(got, wanted):
        yield f"right, with {mine - its} more behind it"
    if isinstance(got, bytes) and isinstance(wanted, bytes) and got == wanted.strip(b"\0 "):
        yield "right, but without the zeros or blanks at its ends"
