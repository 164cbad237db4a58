"""Whatever the payloads: every path returns them in rank order, unchanged, as copies, and works again.

Hypothesis runs here, once; each example goes to ranks that are already up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from rankdrill import World
from rankdrill_strategies import big_payloads, per_rank, picklables, tensors, worlds
from tests.properties.paths import OBJECT_PATHS, drill, pack

MAX_RANKS = 4
DEADLINE_S = 60.0
EXAMPLES = (6, pytest.param(100, marks=pytest.mark.nightly))
CROWDS = (100, pytest.param(400, marks=pytest.mark.nightly))


@pytest.fixture(scope="module")
def worlds_up() -> Iterator[dict[int, World]]:
    """A world of each size; its ranks start at its first run."""
    all_sizes = {size: World(size) for size in range(1, MAX_RANKS + 1)}
    yield all_sizes
    for world in all_sizes.values():
        world.discard()


def check(world: World, path: str, payloads: list[Any], directory: Path) -> None:
    outcome = world.run(drill, path, pack(payloads), str(directory), deadline=DEADLINE_S)
    assert outcome.unwrap() == [[] for _ in payloads]
    assert not directory.exists() or not any(directory.iterdir()), "something was left behind"


@pytest.fixture(scope="module", params=CROWDS)
def crowd(request: pytest.FixtureRequest) -> list[Any]:
    """Hundreds of payloads, the same in every run: what a few examples alone would seldom meet."""
    found: list[Any] = []
    many = settings(max_examples=request.param, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    many(given(picklables(newer_dtypes=True))(lambda payload: found.append(payload)))()
    many(given(tensors(newer_dtypes=True))(lambda payload: found.append(payload)))()
    return found


@pytest.mark.parametrize("path", OBJECT_PATHS)
def test_hundreds_of_kinds_at_once(path: str, worlds_up: dict[int, World], crowd: list[Any], tmp_path: Path) -> None:
    check(worlds_up[2], path, [crowd[0::2], crowd[1::2]], tmp_path / "gathers")


@pytest.mark.parametrize("path", OBJECT_PATHS)
@pytest.mark.parametrize("examples", EXAMPLES)
def test_objects_arrive_unchanged_in_rank_order(
    path: str, examples: int, worlds_up: dict[int, World], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("gathers")

    @settings(max_examples=examples, deadline=None)
    @given(per_rank(picklables(newer_dtypes=True), worlds(max_ranks=MAX_RANKS)))
    def every_rank_is_right(payloads: list[Any]) -> None:
        check(worlds_up[len(payloads)], path, payloads, directory)

    every_rank_is_right()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_tensors_arrive_unchanged_in_rank_order(
    examples: int, worlds_up: dict[int, World], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("gathers")
    big = big_payloads(arrays=False).filter(lambda payload: hasattr(payload, "dtype"))

    @settings(max_examples=examples, deadline=None)
    @given(per_rank(tensors(newer_dtypes=True), worlds(max_ranks=MAX_RANKS), absent=True, big=big))
    def every_rank_is_right(payloads: list[Any]) -> None:
        check(worlds_up[len(payloads)], "get_tensors_parallel", payloads, directory)

    every_rank_is_right()
