"""Handles that C++ holds, under a torch that lets go of what is Python in them: 2.6, of those here.

There a handle written in Python is, in the hands of C++, only as good as long as somebody holds it in Python too. After
that, waiting for it waits for ever: DistributedDataParallel and functional collectives would hang.
"""

from __future__ import annotations

import datetime
import sys
import threading
from types import FrameType
from typing import Any

import torch.distributed as dist

from rankdrill.boundary import torch_seam

__all__ = ["Lasting"]

# Far more than C++ has in hand at a time. Those waited for hold nothing any more, but may be waited for again: a
# coalesced call once for each of its tensors.
MOST_LASTING = 4096

_NO_TIMEOUT = datetime.timedelta(0)


class Lasting:
    """The handles of one group that are kept, the oldest first. Safe to use from several threads."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._kept: dict[int, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def for_caller(self, work: dist.Work, method: str) -> dist.Work:
        """`work`, or what stands for it, for whoever called `method` of the group, two frames up."""
        if torch_seam.keeps_work() or not _called_by_cpp(sys._getframe(1).f_back, method):
            return work
        kept = _Kept(work, self)
        with self._changing:
            self._kept[id(kept)] = kept
            while len(self._kept) > MOST_LASTING:
                self._kept.pop(next(iter(self._kept)))
        return kept

    def let_go(self, kept: _Kept) -> None:
        """C++ has no more use for `kept`."""
        with self._changing:
            self._kept.pop(id(kept), None)


class _Kept(dist.Work):
    """What C++ is given for `work`: it can be waited for, or asked for its future, and torch 2.6 asks no more."""

    def __init__(self, work: dist.Work, among: Lasting) -> None:
        super().__init__()
        self._work: dist.Work | None = work
        self._among = among

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        if self._work is not None:
            self._work.wait(timeout)
            self._work = None  # with the tensors it holds
        return True

    def get_future(self) -> Any:
        """The future; whoever has that needs the handle no longer."""
        assert self._work is not None
        future = self._work.get_future()
        self._among.let_go(self)
        return future


def _called_by_cpp(frame: FrameType | None, method: str) -> bool:
    """Whether what `frame` runs names no such method, and so has not called it itself."""
    return frame is None or method not in frame.f_code.co_names
