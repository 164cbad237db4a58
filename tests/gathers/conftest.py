"""Four ranks for all tests of a module: once over the page of one machine, once over gloo."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch

import rankdrill
from rankdrill.gathers.agreement.channel import LINE_VARIABLE
from tests.covering import the_rest_at_night

HERE = pathlib.Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each path is tried with each payload over each line at night."""
    the_rest_at_night(item for item in items if item.path.is_relative_to(HERE))


@pytest.fixture(scope="module", params=["local", "gloo"])
def line(request: pytest.FixtureRequest) -> Iterator[str]:
    """What exchanges go over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LINE_VARIABLE, request.param)
        yield request.param


@pytest.fixture(scope="module")
def world(line: str) -> Iterator[rankdrill.World]:
    with rankdrill.World(4) as four_ranks:
        yield four_ranks


@pytest.fixture
def receiving(line: str) -> tuple[Any, str]:
    """What a rank calls, as (module, name), to have memory for a payload of several megabytes."""
    return (torch, "from_file") if line == "local" else (numpy, "empty")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where ranks save."""
    return tmp_path / "last.pt"
