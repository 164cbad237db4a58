"""Random number generators whose state is that of a fresh one, or of one that has been used once."""

from __future__ import annotations

import random
import sys
from typing import Any

__all__ = ["write_state"]

_SEEDS = (0, 1)


def write_state(obj: Any) -> str | None:
    """How to come by a generator in the state of `obj`; None for one in any other, and for what is none."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if type(obj) is random.Random:
        return _of_random(obj)
    if torch and type(obj) is torch.Generator:
        return _of_torch(obj, torch)
    if numpy and type(obj) in (numpy.random.RandomState, numpy.random.Generator):
        return _of_numpy(obj, numpy)
    return None


def _of_random(obj: random.Random) -> str | None:
    for seed in _SEEDS:
        fresh = random.Random(seed)
        if fresh.getstate() == obj.getstate():
            return f"random.Random({seed})"
        fresh.gauss(0, 1)
        if fresh.getstate() == obj.getstate():
            return f"(g := random.Random({seed}), g.gauss(0, 1))[0]"
    return None


def _of_torch(obj: Any, torch: Any) -> str | None:
    seed = obj.initial_seed()
    fresh = torch.Generator(device=obj.device).manual_seed(seed)
    if torch.equal(fresh.get_state(), obj.get_state()):
        return f"torch.Generator().manual_seed({seed})"
    torch.rand(3, generator=fresh)
    if torch.equal(fresh.get_state(), obj.get_state()):
        return f"(g := torch.Generator().manual_seed({seed}), torch.rand(3, generator=g))[0]"
    return None


def _of_numpy(obj: Any, numpy: Any) -> str | None:
    if type(obj) is numpy.random.RandomState:
        fresh = numpy.random.RandomState(0).get_state(), obj.get_state()
        alike = fresh[0][0] == fresh[1][0] and (fresh[0][1] == fresh[1][1]).all() and fresh[0][2:] == fresh[1][2:]
        return "numpy.random.RandomState(0)" if alike else None
    alike = obj.bit_generator.state == numpy.random.default_rng(0).bit_generator.state
    return "numpy.random.default_rng(0)" if alike else None
