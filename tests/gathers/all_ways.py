"""Every way of the catalogue with payloads that say whose they are, so that a test can take them all in turn."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from rankdrill.conformance import ways
from rankdrill.conformance.ways import Receives
from rankdrill.gathers.agreement.registry import channel_of
from tests.gathers.attempts import TIMEOUT_S

# In numbers of four bytes: a payload that travels in a slot, and one that does not (200 kB).
SMALL, LARGE = 3, 50_000


def tensor(mark: int, numbers: int = SMALL) -> torch.Tensor:
    """What ranks send: every path takes a tensor. `mark` says whose it is, and of which turn."""
    return torch.full((numbers,), mark, dtype=torch.int32)


def troubled(trouble: Any, numbers: int = SMALL) -> torch.Tensor:
    """A tensor that cannot be pickled, or loaded, as `trouble` cannot."""
    sent = tensor(0, numbers)
    sent.trouble = trouble  # type: ignore[attr-defined]
    return sent


class At(ways.At):
    """As the catalogue's, with the patience of these tests."""

    def __init__(self, group: Any, directory: str, timeout: float = TIMEOUT_S, **more: Any) -> None:
        super().__init__(group, directory, timeout, **more)


@dataclass(frozen=True)
class Way:
    """One way of the catalogue."""

    way: ways.Way

    @property
    def name(self) -> str:
        return self.way.name

    @property
    def by_files(self) -> bool:
        return self.way.by_files

    @property
    def to_all(self) -> bool:
        return self.way.receives is Receives.ALL

    def __call__(self, value: Any, at: ways.At) -> list[tuple[int, int, int]]:
        """What arrived, in few words: how many numbers, the first, the last."""
        return [(len(one), one[0].item(), one[-1].item()) for one in self.way.call(value, at)]

    def expected(self, marks: list[int], numbers: int, rank: int) -> list[tuple[int, int, int]]:
        """What arrives at group rank `rank` where group rank i sends ``tensor(marks[i], numbers)``."""
        return [(numbers, mark, mark) for mark in self.way.given_to(rank, marks)]


WAYS = tuple(map(Way, ways.WAYS.values()))


def way(name: str) -> Way:
    return Way(ways.WAYS[name])


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def is_local(group: Any) -> bool:
    """Whether the gathers of `group` go over the page of one machine."""
    return channel_of(group).one_host
