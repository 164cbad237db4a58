"""Four ranks for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rankdrill


@pytest.fixture(scope="module")
def world() -> Iterator[rankdrill.World]:
    with rankdrill.World(4) as four_ranks:
        yield four_ranks
