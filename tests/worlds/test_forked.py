"""A body that forks by itself: what comes of the child is the child's own, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World

DEADLINE_S = 60.0


def returns() -> None:
    """Out of the function that forked, too."""


def exits_by_0() -> None:
    sys.exit(0)


def exits_by_5() -> None:
    sys.exit(5)


def exits_by_a_text() -> None:
    sys.exit("all wrong")


def raises() -> None:
    raise KeyError("of the child's")


@pytest.mark.parametrize(
    ("child", "code"), [(returns, 0), (exits_by_0, 0), (exits_by_5, 5), (exits_by_a_text, 1), (raises, 1)]
)
def test_a_child_that_comes_to_the_end_of_the_body_ends_as_a_process_would(
    two: World, child: Callable[[], None], code: int
) -> None:
    def body() -> int:
        pid = os.fork()
        if not pid:
            child()
            return -1
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        dist.all_reduce(torch.ones(1))
        return ended

    assert two.run(body, deadline=DEADLINE_S).unwrap() == [code, code]


def test_what_the_rank_does_is_not_covered_up_by_its_child(two: World) -> None:
    def body() -> None:
        if not os.fork():
            sys.exit(0)
        os.wait()
        raise ValueError("the rank's own")

    outcome = two.run(body, deadline=DEADLINE_S)
    assert [type(rank.error) for rank in outcome.ranks] == [ValueError, ValueError]


def test_a_childs_last_words_are_shown(two: World) -> None:
    def body() -> None:
        if not os.fork():
            raise KeyError("of the child's")
        os.wait()

    outcome = two.run(body, deadline=DEADLINE_S)
    outcome.unwrap()
    assert all('KeyError: "of the child\'s"' in rank.stderr for rank in outcome.ranks)
