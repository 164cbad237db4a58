"""DistributedDataParallel's reducer, which calls from C++ in the middle of ``backward()`` and waits at the end of it.

Its calls are numbered by bucket, anew in each backward pass. What it waits for is not the handle but its future, from
C++, which nothing here sees: so the engine of autograd is asked to call when all is issued, which is right before the
reducer's own callback, and once more right after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

import torch

from rankdrill.boundary import torch_seam
from rankdrill.boundary.callsites import MOST_FRAMES, frame_at, passes
from rankdrill.step import DDP_BUCKET, Contract, Site

__all__ = ["BUCKETED", "Buckets", "WaitsAtTheEnd", "named"]

BUCKETED = frozenset({"all_reduce"})
"""What a reducer calls in a backward pass."""
_USAGE = ("int32",)  # of the map of used parameters, which follows the buckets where some may be unused


class Buckets:
    """Says which bucket a call of one group's reducers is for; `in_use` once the group has such a reducer."""

    def __init__(self) -> None:
        self.in_use = False
        self._pass = -1
        self._upcoming = 0

    def site_of(self, contract: Contract, site: Site | None, depth: int) -> Site | None:
        """`site`, with the bucket named if the call of `contract` was made, at `depth`, by a reducer."""
        if not self.in_use or contract.op not in BUCKETED or site is None or not _from_the_engine(depth + 1):
            return site
        if contract.dtypes == _USAGE:
            return _called_by(site, "DDP usage of parameters")
        bucket = self._upcoming_bucket()
        self.take_next()
        return named(site, bucket)

    def next_of(self, tensors: Sequence[torch.Tensor]) -> int:
        """Which bucket a reducer's call with these is for, if it is the next one; -1 if it is for none."""
        return -1 if len(tensors) == 1 and tensors[0].dtype is torch.int32 else self._upcoming_bucket()

    def take_next(self) -> None:
        """The call is made."""
        self._upcoming += 1

    def _upcoming_bucket(self) -> int:
        backward = torch_seam.backward_pass()
        if backward != self._pass:
            self._pass, self._upcoming = backward, 0
        return self._upcoming


def named(site: Site, bucket: int) -> Site:
    """`site`, where a reducer has called for `bucket`."""
    return _called_by(site, f"{DDP_BUCKET}{bucket}")


@lru_cache(maxsize=1024)
def _called_by(site: Site, name: str) -> Site:
    return replace(site, via=name)


def _from_the_engine(depth: int) -> bool:
    """Whether C++ called, right below one ``backward()``: in one that another one runs, passes cannot be told apart."""
    frame = frame_at(depth)
    if frame is None:  # in a thread of the engine's own
        return len(passes) == 1
    above = 0
    for place in range(MOST_FRAMES):
        if frame is None:
            break
        runs_backward = frame.f_code is torch_seam.ENGINE
        if place == 0 and not runs_backward:
            return False
        above += runs_backward
        frame = frame.f_back
    return above == 1 and len(passes) <= 1


class _Waiter(Protocol):
    def begin_waiting(self) -> None:
        """Note that somebody waits from here on."""

    def stop_waiting(self) -> None:
        """Note that nobody waits any more, and whether it is over."""


class WaitsAtTheEnd:
    """Work of one group whose futures were asked for in a backward pass, and are waited for at its end."""

    def __init__(self) -> None:
        self.waiting: list[_Waiter] = []
        self._pass = -1
        self._issued: list[_Waiter] = []

    def expect(self, work: _Waiter) -> None:
        """The future of `work` was asked for; nothing is done outside of a backward pass."""
        if torch_seam.backward_pass() < 0:
            return

        def all_is_issued() -> None:
            work.begin_waiting()
            self.waiting.append(work)
            torch_seam.at_end_of_backward(self.clear)

        torch_seam.at_end_of_backward(all_is_issued)

    def expect_pass(self, work: _Waiter) -> None:
        """The future of `work`, which a reducer has just issued, is waited for at the end of the pass."""
        backward = torch_seam.backward_pass()
        if backward != self._pass:
            self._pass, self._issued = backward, []
            torch_seam.at_end_of_backward(self._all_is_issued)
        self._issued.append(work)

    def _all_is_issued(self) -> None:
        self._pass, issued, self._issued = -1, self._issued, []
        for work in issued:
            work.begin_waiting()
        self.waiting.extend(issued)
        torch_seam.at_end_of_backward(self.clear)

    def clear(self) -> None:
        """Nobody waits: the pass is over, or has failed and another call follows."""
        while self.waiting:
            self.waiting.pop().stop_waiting()
