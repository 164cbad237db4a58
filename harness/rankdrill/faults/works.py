"""The handle of collectives that a strike made several of, or that leave something to do at their end."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

__all__ = ["Chained"]

_NO_TIMEOUT = datetime.timedelta(0)


class Chained(dist.Work):
    """Over when each of `works` is, waited for in order; then `finish` is called, once."""

    def __init__(self, works: Sequence[Any], finish: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._works = [work for work in works if work is not None]
        self._finish = finish
        self._finished = False

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        __tracebackhide__ = True
        done = True
        for work in self._works:
            done = bool(work.wait(timeout) if timeout else work.wait()) and done
        self._end()
        return done

    def is_completed(self) -> bool:
        done = all(work.is_completed() for work in self._works)
        if done:
            self._end()
        return done

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def result(self) -> Any:
        return self._works[0].result()

    def get_future(self) -> Any:
        return self._works[0].get_future()

    def _end(self) -> None:
        if not self._finished:
            self._finished = True
            self._finish()
