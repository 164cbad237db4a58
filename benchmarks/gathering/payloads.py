"""What each rank brings to a gather: the same for a payload, a rank and a session, different for different ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

MB = 1_000_000
LAYERS = 16  # tensors of a nested payload
SEED = 20


@dataclass(frozen=True)
class Payload:
    """`first` bytes on rank 0 and `rest` on every other; as bytes, or as tensors in a nested dict."""

    key: str
    first: int
    rest: int
    tensors: bool = False

    def nbytes(self, rank: int) -> int:
        return self.rest if rank else self.first

    def arriving(self, size: int) -> int:
        return sum(self.nbytes(rank) for rank in range(size))

    @property
    def small(self) -> bool:
        return max(self.first, self.rest) < MB

    @property
    def middling(self) -> bool:
        return max(self.first, self.rest) == MB

    @property
    def equal(self) -> bool:
        return self.first == self.rest

    def make(self, rank: int) -> Any:
        random = np.random.default_rng((SEED, rank))
        if not self.tensors:
            return random.bytes(self.nbytes(rank))
        count = self.nbytes(rank) // LAYERS // 4
        layers = [torch.from_numpy(random.random(count, dtype=np.float32)) for _ in range(LAYERS)]
        return {"step": rank, "layers": [{"weight": layer.reshape(100, -1)} for layer in layers]}


PAYLOADS = {
    payload.key: payload
    for payload in (
        Payload("100 B", 100, 100),
        Payload("10 kB", 10_000, 10_000),
        Payload("1 MB", MB, MB),
        Payload("64 MB", 64 * MB, 64 * MB),
        Payload("64 MB tensors", 64 * MB, 64 * MB, tensors=True),
        Payload("skew", 64 * MB, 100),
    )
}
TINY = PAYLOADS["100 B"]


def as_flat(value: Any) -> torch.Tensor:
    """The bytes of a payload in one new uint8 tensor, for what can send nothing else."""
    if isinstance(value, torch.Tensor):
        return value.view(torch.uint8)
    if isinstance(value, bytes):
        return torch.frombuffer(bytearray(value), dtype=torch.uint8)
    return torch.cat([layer["weight"].flatten().view(torch.uint8) for layer in value["layers"]])


def copy(value: Any) -> Any:
    """A copy in fresh memory, made in the fastest way there is from Python."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, bytes):
        return bytes(memoryview(value))
    if isinstance(value, dict):
        return {key: copy(each) for key, each in value.items()}
    return [copy(each) for each in value] if isinstance(value, list) else value


def equal(one: Any, other: Any) -> bool:
    """Whether two payloads are of the same types and have the same contents."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)
