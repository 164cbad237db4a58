"""The gate of a boundary: when a call made now is a step, and who stands between it and the real thing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

from rankdrill.native import hot
from rankdrill.step import Step

__all__ = ["Call", "Gate", "Interceptor", "Proceed"]


class Call(NamedTuple):
    """One call as it crosses: the step, the arguments by name, and the record in the ledger.

    A strike changes arguments by passing `call.with_args(...)` on; the call itself is never mutated.
    """

    step: Step
    args: dict[str, Any]
    record: int = -1

    def with_args(self, **changes: Any) -> Call:
        """The same call with some arguments replaced."""
        return self._replace(args={**self.args, **changes})


Proceed: TypeAlias = Callable[[Call], Any]


class Interceptor(Protocol):
    """Stands between a call and the real thing: a fault, a scheduler, a check."""

    def __call__(self, call: Call, proceed: Proceed) -> Any: ...


class _Inside(Protocol):
    """How deep this thread is in rankdrill's own work, or in the real thing behind a crossing; each has its own."""

    depth: int


class _PlainInside(threading.local):
    depth = 0


def _inside() -> _Inside:
    """One for all threads, in C if there is one, and if the process may have one more."""
    if hot is not None:
        with contextlib.suppress(RuntimeError):
            return cast(_Inside, hot.Inside())
    return _PlainInside()


if TYPE_CHECKING:

    class _Looked:
        interceptors: tuple[Interceptor, ...]
        recorded: bool
        inside: _Inside

else:
    _Looked = object if hot is None else hot.Gate


class _Closing:
    """The context in which a boundary is closed; any threads may be in it, and in it again."""

    def __init__(self, inside: _Inside) -> None:
        self._inside = inside

    def __enter__(self) -> None:
        self._inside.depth += 1

    def __exit__(self, *raised: object) -> None:
        self._inside.depth -= 1


class Gate(_Looked):
    """Open inside `recording()` only, and not inside a crossing's own real call nor rankdrill's own work."""

    def __init__(self) -> None:
        # These three are asked at every call: plain attributes, which others than this class only look at.
        self.interceptors = ()
        self.recorded = False
        self.inside = _inside()
        self._closing = _Closing(self.inside)

    @property
    def open(self) -> bool:
        """Whether a call made now, on this thread, is a step."""
        return self.recorded and not self.inside.depth

    @contextmanager
    def recording(self, interceptors: Sequence[Interceptor] = ()) -> Iterator[None]:
        """Make calls steps for the duration, past `interceptors`, the first outermost. Nests."""
        before = self.recorded, self.interceptors
        self.recorded, self.interceptors = True, tuple(interceptors)
        try:
            yield
        finally:
            self.recorded, self.interceptors = before

    def strike_with(self, interceptors: Sequence[Interceptor]) -> None:
        """Have other interceptors from here on, in the middle of a recording."""
        self.interceptors = tuple(interceptors)

    def also(self, interceptor: Interceptor) -> None:
        """Have one more, the innermost, from here on."""
        self.interceptors = (*self.interceptors, interceptor)

    def without(self, interceptor: Interceptor) -> None:
        """Have it no more."""
        self.interceptors = tuple(each for each in self.interceptors if each is not interceptor)

    def stand_in(self, interceptor: Interceptor) -> None:
        """In a copy of the rank: have it take all calls from here on."""
        self.recorded, self.interceptors = True, (interceptor,)

    def closed(self) -> AbstractContextManager[None]:
        """Calls made by this thread for the duration are no steps: rankdrill's own work."""
        return self._closing
