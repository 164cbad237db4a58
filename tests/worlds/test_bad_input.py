"""Worlds that cannot be: one line that says which value, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from rankdrill import World
from rankdrill.errors import RankdrillError, UsageError
from rankdrill.worlds.gpus import count_gpus


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((0,), {}, "World(0): a world has 1 to"),
        ((-1,), {}, "World(-1): a world has 1 to"),
        (("x",), {}, "World('x'): a world has 1 to"),
        ((2.0,), {}, "World(2.0): a world has 1 to"),
        ((True,), {}, "World(True): a world has 1 to"),
        ((10**9,), {}, "World(1000000000): a world has 1 to"),
        ((2,), {"engine": "steam"}, "engine='steam' is not known; choose from processes"),
        ((2,), {"backend": "mpi"}, "backend='mpi' is not known; choose from gloo"),
        ((2,), {"device": "tpu"}, "device='tpu' is not known; choose from cpu"),
        ((1025,), {"backend": "nccl", "device": "cuda"}, "World(1025): a world has 1 to 1024 ranks"),
    ],
)
def test_a_world_that_cannot_be(arguments: tuple[Any, ...], options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        World(*arguments, **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, RankdrillError)


@pytest.mark.skipif(count_gpus() > 0, reason="asks for a GPU where there is none")
def test_a_gpu_where_there_is_none() -> None:
    for options in ({"device": "cuda"}, {"backend": "nccl"}):
        with pytest.raises(
            UsageError, match=r"need a GPU, which they may share, and torch finds none .*; use backend="
        ):
            World(2, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), "soon", None])
def test_a_deadline_that_is_none(two: World, deadline: Any) -> None:
    with pytest.raises(UsageError, match=r"^deadline=.* is no time to wait; give seconds above 0$"):
        two.run(print, deadline=deadline)


def test_a_body_that_is_none(two: World) -> None:
    with pytest.raises(UsageError, match=r"^5 cannot be run; give a function$"):
        two.run(5)  # type: ignore[arg-type]
