"""What a call leaves in its process is seen between two looks."""

from __future__ import annotations

import mmap
import os
import random
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch

from rankdrill.conformance.leftovers import Belongings

GENERATORS: dict[str, Callable[[], object]] = {
    "random": random.random,
    "numpy.random": numpy.random.random,
    "torch": lambda: torch.rand(1),
}


@pytest.fixture
def segment() -> Iterator[Path]:
    """Where a segment may be made; it is removed afterwards."""
    path = Path("/dev/shm", f"rankdrill-test-{secrets.token_hex(8)}")
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_that_was_drawn_from_is_named(name: str) -> None:
    draw = GENERATORS[name]
    draw()  # the first number of a batch renews the whole state, those after it only the position
    before = Belongings.now(shared_memory=False)
    draw()
    assert Belongings.now(shared_memory=False).left_since(before) == (f"the global generator of {name} advanced",)


def test_a_segment_that_stays_mapped_is_named(segment: Path) -> None:
    before = Belongings.now(shared_memory=True)
    fd = os.open(segment, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(fd, mmap.PAGESIZE)
    with mmap.mmap(fd, mmap.PAGESIZE):
        os.close(fd)
        segment.unlink()  # mapped all the same
        left = Belongings.now(shared_memory=True).left_since(before)
        assert f"mapped segment {segment}" in left
        assert not [line for line in Belongings.now(shared_memory=False).left_since(before) if "segment" in line]
    assert Belongings.now(shared_memory=True).left_since(before) == ()
