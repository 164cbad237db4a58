"""Payloads that are big, and quick to draw and to shrink: a size, filled by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from rankdrill_strategies.arguments import check_count, check_flag

__all__ = ["big_payloads"]

_SMALLEST = 1 << 10  # bytes
_BYTES_PER_INT = 11  # what pickle makes of a random int of 64 bits
_FACTOR, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1  # Fibonacci hashing: no two neighbours alike, no generator


def big_payloads(*, max_bytes: int = 1 << 20, tensors: bool = True, arrays: bool = True) -> st.SearchStrategy[Any]:
    """Payloads of 1 KiB up to about `max_bytes` once pickled: bytes, lists, arrays and tensors.

    Sizes are spread evenly over orders of magnitude and lie next to powers of two, where buffers end.
    Shrinks towards 1 KiB of bytes.
    """
    check_count("max_bytes", max_bytes, at_least=_SMALLEST)
    makers: list[Callable[[int], Any]] = [_bytes, _ints]
    makers += [_array] if check_flag("arrays", arrays) else []
    makers += [_tensor] if check_flag("tensors", tensors) else []
    sizes = st.builds(
        lambda power, more: min((1 << power) + more, max_bytes),
        st.integers(_SMALLEST.bit_length() - 1, max_bytes.bit_length() - 1),
        st.integers(0, 8),
    )
    return st.builds(lambda make, size: make(size), st.sampled_from(makers), sizes)


def _ints(size: int) -> list[int]:
    return [(n * _FACTOR) & _MASK for n in range(size // _BYTES_PER_INT + 1)]


def _bytes(size: int) -> bytes:
    return bytes((n * 31) & 0xFF for n in range(256)) * (size // 256) + b"\x01" * (size % 256)


def _array(size: int) -> Any:
    import numpy

    return numpy.frombuffer(bytearray(_bytes(size)), dtype=numpy.uint8)


def _tensor(size: int) -> Any:
    import torch

    return torch.arange(max(1, size // 4), dtype=torch.float32)
