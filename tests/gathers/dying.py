"""Ranks that die by plan, where a test wants them to."""

from __future__ import annotations

import os
from typing import Any

import rankdrill

# No such file: a rank that looks for it dies there.
THE_END = "the end of this rank"


def to_die(rank: int, how: str) -> rankdrill.Plan:
    """That `rank` dies where it calls `die`.

    By plan: after a death that nobody planned, survivors have half a second to say what it did to them, and on a busy
    machine theirs takes longer.
    """
    return rankdrill.Plan.parse(f'rank {rank}: {how} before file.stat on "{THE_END}"')


def die(*args: Any, **kwargs: Any) -> None:
    os.stat(THE_END)


def survivors(outcome: rankdrill.Outcome, lost: int) -> list[Any]:
    return [value for rank, value in enumerate(outcome.unwrap()) if rank != lost]
