"""Random numbers of a rank: seeds of its own, as processes have, and the same ones in the next run."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy
import torch

__all__ = ["Generators", "reseed", "seed_of"]


def seed_of(base: int, test: str, rank: int | None) -> int:
    """The seed of `test` on `rank` (None: the same on all ranks) in a run with the seed `base`; 32 bits."""
    text = f"{base}:{test}:{'' if rank is None else rank}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def reseed(seed: int) -> None:
    """Seed `random`, numpy's and torch's default generators."""
    random.seed(seed)
    numpy.random.seed(seed)
    # `torch.manual_seed` also leaves a note, with a traceback, for every kind of device: a quarter of a millisecond.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


class Generators:
    """The states of `random`, numpy's and torch's default generators at one moment."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy: Any = numpy.random.get_state()
        self._torch = torch.get_rng_state()

    @classmethod
    def seeded(cls, seed: int) -> Generators:
        """Seed all three; returns their states then."""
        reseed(seed)
        return cls()

    def unchanged(self) -> bool:
        """Whether nobody has drawn from or seeded any of them since."""
        position: Any = numpy.random.get_state()
        return (
            torch.equal(self._torch, torch.get_rng_state())
            and self._python == random.getstate()
            and bool(self._numpy[2] == position[2])
            and bool((self._numpy[1] == position[1]).all())
        )

    def put_back(self) -> None:
        """Let all three go on from here."""
        random.setstate(self._python)
        numpy.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
