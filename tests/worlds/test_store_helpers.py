"""Keys of a store that ranks set and wait for by way of helpers of their own: what these are given says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

Body = Callable[[RankContext], None]


class Words:
    """Words that ranks pass to each other."""

    def __init__(self, store: Any, mine: str = "") -> None:
        self.store = store
        self.mine = mine

    def hear(self, word: str) -> None:
        self.store.wait([f"word/{word}"])

    def say(self, word: str) -> None:
        self.store.set(f"word/{word}", "said")

    def is_done(self) -> None:
        self.store.set(f"word/{self.mine} is done", "said")


def each_hears_first(rank: RankContext) -> None:
    words = Words(rank.store)
    if rank.index == 0:
        words.hear("ready")  # waits
        words.say("go")
    elif rank.index == 1:
        words.hear("go")  # waits
        words.say("ready")
    dist.barrier()


def each_is_done_after_the_other(rank: RankContext) -> None:
    words = Words(rank.store, f"part {rank.index}")
    if rank.index < 2:
        words.hear(f"part {1 - rank.index} is done")  # waits
    words.is_done()
    dist.barrier()


@pytest.mark.parametrize("body", [each_hears_first, each_is_done_after_the_other])
def test_two_that_wait_for_each_others_words(fresh: World, body: Body) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, ())
    assert found.ranks == (0, 1)
    callers = {site.caller for side in found.sides for site in side.sites if site is not None}
    assert {caller.function for caller in callers if caller is not None} == {body.__name__}


def says_another_word(rank: RankContext) -> None:
    words = Words(rank.store)
    if rank.index == 0:
        words.hear("ready")
        words.say("go")
    elif rank.index == 1:
        words.say("steady")  # says
        words.hear("go")
    dist.barrier()


def test_a_word_that_nobody_is_to_say_is_no_circle(fresh: World) -> None:
    found = run(fresh, says_another_word, deadline=30).findings[0]
    assert found.kind is FindingKind.MISSING_KEY
    assert 1 in found.ranks
    assert "word/ready" in str(found)
    assert marks(found) is not None
