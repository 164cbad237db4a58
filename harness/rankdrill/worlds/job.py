"""What is to run on the ranks of a world, whoever runs them."""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import cloudpickle

from rankdrill.worlds.array_layout import dispatch_table
from rankdrill.worlds.plain import Plain
from rankdrill.worlds.suffering import led_to

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Job", "Place", "dump", "dump_error", "load"]

MOST_EARLIER = 8  # errors that led to one


@dataclass(frozen=True, slots=True)
class Place(Plain):
    """Where a body runs: what a rank takes over from its controller before each run."""

    sys_path: tuple[str, ...]
    cwd: str
    environ: dict[str, str]


@dataclass(frozen=True, slots=True)
class Job(Plain):
    """One body to run. With `with_context` it is given the rank's `RankContext` first.

    A world in which a collective failed is thrown away, unless `in_step` says that the caller sees to it that its
    ranks are in step afterwards, as a drill does whose next call has to work.

    Jobs that belong together, as the setup, call and teardown of one test, say so: only the first of them `begins`,
    and may get fresh ranks; only after the last, which `ends`, are ranks thrown away that are alive but unfit for
    others. A body of several jobs pauses between them (`RankContext.pause`), and with `keeps_state` it puts back
    itself what it changes in its process. One that `prepares` leaves what others are to begin with: importing a test
    file may start threads, or make a group. One that `may_raise` has cleaned up after what it raises, as pytest has:
    its ranks are kept where all are seen to be in step. One that `counts_anew` numbers collectives from 0 though it
    does not begin. With `by_reference` both ends can import all that it is made
    of, so that nothing is to be looked for that has to travel by value.
    """

    body: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    plan: Plan | None = None
    with_context: bool = False
    in_step: bool = False
    begins: bool = True
    ends: bool = True
    keeps_state: bool = False
    prepares: bool = False
    may_raise: bool = False
    counts_anew: bool = False
    by_reference: bool = False


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # (it has no types)
    @property
    def dispatch_table(self) -> ChainMap[type, Any]:  # asked for once, when it is made
        return ChainMap(dispatch_table(), super().dispatch_table)


def dump(message: Any, *, by_reference: bool = False) -> bytes:
    """Pickle `message`; functions that cannot be imported elsewhere travel by value.

    `by_reference` says that there are none in it, as far as the sender knows.
    """
    if by_reference:
        with suppress(Exception):
            return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    written = io.BytesIO()
    _Pickler(written, protocol=pickle.HIGHEST_PROTOCOL).dump(message)
    return written.getvalue()


def dump_error(error: BaseException) -> bytes:
    """Pickle `error`; empty if it cannot be pickled and loaded again: then its text has to do.

    Of those that it was raised in the handling of, which pickle leaves behind, the ones that can be come with it.
    """
    earlier = [each for each in islice(led_to(error), MOST_EARLIER) if _is_picklable(each)]
    return pickle.dumps(_Chain(error, earlier)) if _is_picklable(error) else b""


def _is_picklable(error: BaseException) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


class _Chain:
    """Pickles to an error that has its earlier ones again."""

    def __init__(self, error: BaseException, earlier: Sequence[BaseException]) -> None:
        self._errors = (error, *earlier)

    def __reduce__(self) -> tuple[Any, ...]:
        return _chained, self._errors


def _chained(error: BaseException, *earlier: BaseException) -> BaseException:
    for later, before in pairwise((error, *earlier)):
        later.__context__ = before
    return error


load = pickle.loads
"""Unpickles what this run's own other end sent."""
