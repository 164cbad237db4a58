"""The adapter: all that a drill must know about a gather, so that anybody's can be put through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankdrill.conformance.payloads import PAYLOADS, Payload
from rankdrill.errors import GatherError
from rankdrill.step import Kind

__all__ = ["Adapter", "Setting", "blamed_by_gather_error", "everything"]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where one call of a gather happens, equal on all ranks but for `rank`.

    `directory` is private to the case and exists; `room` bounds any rank's pickled payload, in bytes,
    for gathers that need one; `timeout` is in seconds.
    """

    rank: int
    size: int
    directory: str
    room: int
    timeout: float


def everything(rank: int, payloads: Sequence[Any]) -> Any:
    """Every rank receives every payload, in rank order."""
    return list(payloads)


def _as_it_is(payload: Any) -> Any:
    return payload


def blamed_by_gather_error(error: BaseException) -> tuple[int, ...] | None:
    """The ranks that a `GatherError` names."""
    return error.ranks if isinstance(error, GatherError) else None


@dataclass(frozen=True)
class Adapter:
    """A gather as the drill sees it.

    `call(payload, setting)` is run by every rank and returns what the rank received, or raises. Functions must be
    importable on the ranks, or picklable by cloudpickle.

    - `receives(rank, payloads)` is what `rank` must be given, `payloads` being all ranks' payloads in rank order;
    - `dress` turns a drill payload into one that this gather accepts (a dict, say);
    - `payloads` are those it is drilled with, by name; one must be called ``small``;
    - `kinds` are the kinds of steps it may take: faults of other kinds do not apply;
    - `blames(error)` is which ranks an error names as the cause, or None if it is of no type that could;
    - `keeps` are glob patterns of files that it leaves on purpose, below the directory.
    """

    name: str
    call: Callable[[Any, Setting], Any]
    receives: Callable[[int, Sequence[Any]], Any] = everything
    dress: Callable[[Any], Any] = _as_it_is
    payloads: Mapping[str, Payload] = field(default_factory=lambda: PAYLOADS)
    kinds: frozenset[Kind] = frozenset(Kind)
    keeps: tuple[str, ...] = ()
    blames: Callable[[BaseException], tuple[int, ...] | None] = blamed_by_gather_error

    def payload(self, name: str, rank: int, size: int, turn: int) -> Any:
        """What `rank` contributes to call number `turn` of a case with the payloads `name`."""
        return self.dress(self.payloads[name].make(rank, size, turn))

    def expected(self, name: str, rank: int, size: int, turn: int) -> Any:
        """What `rank` must receive in call number `turn`."""
        return self.receives(rank, [self.payload(name, giver, size, turn) for giver in range(size)])
