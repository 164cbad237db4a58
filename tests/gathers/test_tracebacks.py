"""What pytest shows of a gather that fails: the caller's own line, and nothing of how the ranks found out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import rankdrill
from rankdrill import gathers
from rankdrill.errors import GatherError, UsageError
from rankdrill.gathers import all_gather_object
from tests.gathers.all_ways import LARGE, SMALL, WAYS, At, Way, tensor, troubled
from tests.gathers.attempts import TIMEOUT_S

GATHERS = Path(gathers.__file__).parent


class DoesNotLoad:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def shown(caught: pytest.ExceptionInfo[BaseException]) -> list[Path]:
    """The files of the frames that pytest shows."""
    return [Path(entry.path) for entry in caught.traceback.filter(caught)]


@pytest.fixture(scope="module")
def world() -> Iterator[rankdrill.World]:
    with rankdrill.World(2) as world:
        yield world


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_no_frame_of_ours_is_shown(world: rankdrill.World, way: Way, tmp_path: Path) -> None:
    def body() -> Any:
        told = []
        for trouble, numbers in product((threading.Lock, DoesNotLoad), (SMALL, LARGE)):
            value = troubled(trouble(), numbers) if dist.get_rank() == 1 else tensor(0, numbers)
            with pytest.raises(GatherError) as caught:
                way(value, At(dist.group.WORLD, str(tmp_path)))
            told.append(shown(caught))
        return told

    for told in world.run(body).unwrap():
        assert [files[0] for files in told] == [Path(__file__)] * 4
        assert [path for files in told for path in files if path.is_relative_to(GATHERS)] == []


def test_the_last_line_is_the_callers(world: rankdrill.World) -> None:
    def body() -> Any:
        with pytest.raises(GatherError) as caught:
            all_gather_object([None] * (2 - dist.get_rank()), 1, timeout=TIMEOUT_S)
        return shown(caught)

    assert world.run(body).unwrap() == [[Path(__file__)]] * 2


def test_of_a_mistake_of_the_caller_nothing_else_is_shown() -> None:
    with pytest.raises(UsageError) as caught:
        gathers.all_gather(1, timeout=-1)
    assert shown(caught) == [Path(__file__)]


def test_why_it_could_not_be_sent_still_leads_to_the_line_that_refused(world: rankdrill.World) -> None:
    def body() -> Any:
        class Refuses:
            def __reduce__(self) -> Any:
                raise ValueError("not now")

        with pytest.raises(GatherError) as caught:
            all_gather_object([None] * 2, Refuses() if dist.get_rank() else 1, timeout=TIMEOUT_S)
        cause = caught.value.__cause__
        return None if cause is None else shown(pytest.ExceptionInfo.from_exception(cause))

    assert world.run(body).unwrap() == [None, [Path(__file__)]]
