"""Random numbers of a rank: seeds of its own, as processes have, and the same ones in the next run."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy
import torch

__all__ = ["Generators", "drawn_since", "reseed", "seed_of"]


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


def drawn_since(seed: int) -> bool:
    """Whether somebody has drawn numbers since `reseed(seed)`, from a generator that nobody has seeded since."""
    before: Any = numpy.random.RandomState(seed).get_state()
    now: Any = numpy.random.get_state()
    if now[2] != before[2] and _leads_to(before[1], now[1]):  # words, and how many of them have been given out
        return True
    before, now = random.Random(seed).getstate()[1], random.getstate()[1]
    if now[-1] != before[-1] and _leads_to(before[:-1], now[:-1]):
        return True
    as_seeded = torch.Generator().manual_seed(seed)
    moved = not torch.equal(as_seeded.get_state(), torch.get_rng_state())
    return moved and torch.initial_seed() == as_seeded.initial_seed()


class Generators:
    """The states of `random`, numpy's and torch's default generators at one moment, or of some of them."""

    def __init__(self) -> None:
        self._python: Any = random.getstate()
        self._numpy: Any = numpy.random.get_state()
        self._torch: torch.Tensor | None = torch.get_rng_state()
        self._torch_seed = torch.initial_seed()

    @classmethod
    def seeded(cls, seed: int) -> Generators:
        """Seed all three; returns their states then."""
        reseed(seed)
        return cls()

    def seeded_since(self) -> Generators | None:
        """As they are now, those of the generators that somebody has seeded since; None if nobody has.

        Whoever only draws leaves a generator on the way that it was on.
        """
        now = Generators()
        if now._torch_seed == self._torch_seed:
            now._torch = None
        if _leads_to(self._numpy[1], now._numpy[1]):
            now._numpy = None
        if _leads_to(self._python[1][:-1], now._python[1][:-1]):
            now._python = None
        return now if (now._python, now._numpy, now._torch) != (None, None, None) else None

    def put_back(self) -> None:
        """Let them go on from here."""
        if self._python is not None:
            random.setstate(self._python)
        if self._numpy is not None:
            numpy.random.set_state(self._numpy)
        if self._torch is not None:
            torch.set_rng_state(self._torch)


def _leads_to(before: Any, now: Any) -> bool:
    """Whether drawing leads a Mersenne Twister from the words `before` to the words `now`; neither has a position.

    Its words change as a whole, each time that all have been drawn. Who has drawn more than 4 000 times as many, 2.5
    million, is taken to have seeded.
    """
    before, now = numpy.asarray(before, dtype=numpy.uint32), numpy.asarray(now, dtype=numpy.uint32)
    if (before == now).all():
        return True
    on_its_way = numpy.random.MT19937()
    on_its_way.state = {"bit_generator": "MT19937", "state": {"key": before, "pos": len(before)}}
    sought = _drawn_from(now)
    for times in (1, 9, 90, 900, 3000):  # most who draw draw little
        drawn = on_its_way.random_raw(times * len(now)).reshape(times, len(now))
        if (drawn == sought).all(axis=1).any():
            return True
    return False


def _drawn_from(words: Any) -> Any:
    """What a Mersenne Twister with these words gives out for them (Matsumoto and Nishimura 1998, their tempering)."""
    words = words ^ (words >> 11)
    words = words ^ ((words << 7) & 0x9D2C5680)
    words = words ^ ((words << 15) & 0xEFC60000)
    return words ^ (words >> 18)
