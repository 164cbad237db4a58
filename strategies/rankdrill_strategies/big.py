"""Payloads of a given size once pickled: next to where buffers end, and big ones that are quick to draw and shrink."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies.arguments import check_count, check_flag
from rankdrill_strategies.writing import pasteable

__all__ = ["big_payloads", "edges"]

_Draw = Callable[[st.SearchStrategy[Any]], Any]
_SMALLEST = 1 << 10  # bytes
_SMALLEST_EDGE = 32  # bytes that pickle makes of the smallest payload, and some
_BYTES_PER_INT = 11  # what pickle makes of a random int of 63 bits, at most
# Fibonacci hashing: no two neighbours alike, no generator. Of 63 bits: what is big is lost for its size alone, or a
# mistake that loses numbers would shrink to a thousand of them.
_FACTOR, _MASK = 0x9E3779B97F4A7C15, (1 << 63) - 1
_COUNT = bytes(range(256))
_PROTOCOL = 5
_TRIALS = 4  # a length is corrected by what it missed by, and once more where a frame or an opcode grew with it
_POWERS = (12, 12, 12, 12, 12, 6, 7, 8, 9, 10, 10, 11, 13, 16, 16)  # of two; 4 096 most often
_NEAR = (0, 0, 0, 0, 1, 1, -1, -1, -4, -8, -2, -3, -16, 4, 8)  # bytes: a header, an end mark


def big_payloads(
    *,
    max_bytes: int = 1 << 20,
    tensors: bool = True,
    arrays: bool = True,
    near: Sequence[int] = (),
) -> st.SearchStrategy[Any]:
    """Payloads of 1 KiB up to `max_bytes` once pickled: bytes, lists, text, arrays and tensors.

    Sizes are spread evenly over orders of magnitude. Most lie where buffers end: pickled (protocol 4 or 5), bytes
    and text come to a power of two, to 4 096, to `max_bytes`, exactly, to a byte more or less, or to as many less
    as a header takes. `near` names further such sizes, in bytes: those of your slot or page. Only what lies next
    to `max_bytes` or to one of `near` may have a few bytes more than `max_bytes`. Shrinks towards 1 KiB of bytes.
    """
    check_count("max_bytes", max_bytes, at_least=_SMALLEST)
    for size in near:
        check_count("near", size, at_least=_SMALLEST_EDGE)
    makers: list[Callable[[int], Any]] = [_bytes, _ints]
    makers += [_array] if check_flag("arrays", arrays) else []
    makers += [_tensor] if check_flag("tensors", tensors) else []
    return pasteable(_big(tuple(makers), max_bytes, tuple(near)))


@st.composite
def _big(draw: _Draw, makers: tuple[Callable[[int], Any], ...], max_bytes: int, near: tuple[int, ...]) -> Any:
    power = draw(st.integers(_SMALLEST.bit_length() - 1, max_bytes.bit_length() - 1))
    if draw(st.booleans()):
        ends = [1 << power, 1 << power, max_bytes, *near, *near]
        return _exactly(draw(st.sampled_from(ends)) + draw(st.sampled_from(_NEAR)), draw(st.sampled_from(_EXACT)))
    size = (1 << power) + draw(st.integers(0, 8)) + draw(st.integers(0, 255)) * (1 << power) // 256
    return draw(st.sampled_from(makers))(min(size, max_bytes))


@st.composite
def edges(draw: _Draw) -> Any:
    """Bytes or text that pickle to a power of two, 64 to 65 536, give or take nothing or the bytes of a header."""
    size = (1 << draw(st.sampled_from(_POWERS))) + draw(st.sampled_from(_NEAR))
    return _exactly(size, draw(st.sampled_from(_EXACT)))


def _exactly(size: int, make: Callable[[int], Any]) -> Any:
    return make(_length(size, make))


@lru_cache(maxsize=4096)
def _length(size: int, make: Callable[[int], Any]) -> int:
    """Of what `make` has to make for pickle to make `size` bytes of it; a byte less where there is none."""
    length = size - _SMALLEST_EDGE // 2
    for _ in range(_TRIALS):
        missed = size - len(pickle.dumps(make(length), _PROTOCOL))
        if not missed:
            break
        length += missed
    return length


def _ints(size: int) -> list[int]:
    return [(n * _FACTOR) & _MASK for n in range(size // _BYTES_PER_INT + 1)]


def _bytes(size: int) -> bytes:
    return (_COUNT * (size // len(_COUNT) + 1))[:size]


def _equal_bytes(size: int) -> bytes:
    return b"a" * size


def _text(size: int) -> str:
    return "a" * size


def _list(size: int) -> list[bytes]:
    return [b"a" * size]


_EXACT: tuple[Callable[[int], Any], ...] = (_equal_bytes, _text, _list)


def _array(size: int) -> Any:
    import numpy

    return numpy.frombuffer(bytearray(_bytes(size)), dtype=numpy.uint8)


def _tensor(size: int) -> Any:
    import torch

    return torch.arange(max(1, size // 4), dtype=torch.float32)
