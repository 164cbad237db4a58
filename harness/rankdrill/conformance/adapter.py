"""The adapter: all that a drill must know about a gather, so that anybody's can be put through it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rankdrill.conformance.exact import difference, plain, shown
from rankdrill.conformance.gives import NOT_LOOKED_AT
from rankdrill.conformance.payloads import PAYLOADS, Payload
from rankdrill.conformance.promises import ALL_PROMISES, Promise
from rankdrill.errors import GatherError
from rankdrill.step import Kind

__all__ = ["UNBOUNDED", "Adapter", "Setting", "blamed_by_gather_error", "everything", "takes_all"]

UNBOUNDED = 1 << 22
"""Bytes that no payload of the kit has: the room of gathers that know no bound."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where one call of a gather happens, equal on all ranks but for `rank`.

    `directory` is private to the case and exists; `room` bounds any rank's pickled payload of this call, in bytes,
    for gathers that need one; `timeout` is in seconds. `group` is the process group that calls, `rank` and `size` are
    those in it, `members` its global ranks; `turn` is another number for each call. `store` is a store that these
    ranks share, and nobody else.
    """

    rank: int
    size: int
    directory: str
    room: int
    timeout: float
    group: Any = None
    members: tuple[int, ...] = ()
    turn: int = 0
    store: Any = None


def everything(rank: int, payloads: Sequence[Any]) -> Any:
    """Every rank receives every payload, in rank order."""
    return list(payloads)


def _as_it_is(payload: Any) -> Any:
    return payload


def takes_all(function: Callable[..., Any], count: int) -> bool:
    """Whether `function` has to be given `count` positional arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # something built in
        return False
    wanted = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
    ]
    return len(wanted) == count


def blamed_by_gather_error(error: BaseException) -> tuple[int, ...] | None:
    """The ranks that a `GatherError` names."""
    return error.ranks if isinstance(error, GatherError) else None


@dataclass(frozen=True)
class Adapter:
    """A gather as the drill sees it.

    `call(payload, setting)` is run by every rank and returns what the rank received, or raises. Functions must be
    importable on the ranks, or picklable by cloudpickle.

    - `receives(rank, payloads)` is what `rank` must be given, `payloads` being all ranks' payloads in rank order;
    - `dress(payload)` turns a drill payload into one that this gather accepts (a dict, say); if it wants four
      arguments, it is given the rank, the size and the turn, too;
    - `payloads` are those it is drilled with, by name; one must be called ``small``;
    - `kinds` are the kinds of steps it may take: faults of other kinds do not apply;
    - `blames(error)` is which ranks an error names as the cause, or None if it is of no type that could;
    - `keeps` are glob patterns of files that it leaves on purpose, below the directory;
    - `promises` are what it is held to by `conformance`, `takes` what payloads are made of there (see `SAMPLES`), or
      payloads of your own by name, and `same(got, wanted)` compares what a rank received, where equality of types and
      values is too much to ask; `near` is how far floats may be off, as a share of what is right, and
      without `types` an OrderedDict is as good as a dict, and a number as a tensor without dimensions;
    - `room` bounds pickled payloads, in bytes, where the gather has a bound of its own;
    - `mpi` says that it is called by the ranks of ``MPI.COMM_WORLD``.
    """

    name: str
    call: Callable[[Any, Setting], Any]
    receives: Callable[[int, Sequence[Any]], Any] = everything
    dress: Callable[..., Any] = _as_it_is
    payloads: Mapping[str, Payload] = field(default_factory=lambda: PAYLOADS)
    kinds: frozenset[Kind] = frozenset(Kind)
    keeps: tuple[str, ...] = ()
    blames: Callable[[BaseException], tuple[int, ...] | None] = blamed_by_gather_error
    promises: frozenset[Promise] = ALL_PROMISES
    takes: str | Mapping[str, Payload] = "objects"
    same: Callable[[Any, Any], bool] | None = None
    near: float = 0.0
    types: bool = True
    room: int = UNBOUNDED
    mpi: bool = False

    def dressed(self, payload: Any, rank: int, size: int, turn: int) -> Any:
        """`payload` as this gather accepts it."""
        return self.dress(payload, rank, size, turn) if self._dresses_by_rank else self.dress(payload)

    @cached_property
    def _dresses_by_rank(self) -> bool:
        return takes_all(self.dress, 4)

    def payload(self, name: str, rank: int, size: int, turn: int) -> Any:
        """What `rank` contributes to call number `turn` of a case with the payloads `name`."""
        return self.dressed(self.payloads[name].make(rank, size, turn), rank, size, turn)

    def expected(self, name: str, rank: int, size: int, turn: int) -> Any:
        """What `rank` must receive in call number `turn`."""
        return self.receives(rank, [self.payload(name, giver, size, turn) for giver in range(size)])

    def differs(self, got: Any, wanted: Any, *, ordered: bool = False) -> str | None:
        """Where what a rank received differs from what it should have, in one line; None if it does not.

        In which order the keys of dicts come is looked at if `ordered`; of a dict by rank, never.
        """
        if wanted is NOT_LOOKED_AT:
            return None
        if self.same is not None:
            return None if self.same(got, wanted) else f"result is {shown(got)}, not {shown(wanted)}"
        if not self.types:
            return difference(plain(got), plain(wanted), ordered=ordered, near=self.near)
        if type(got) is dict and type(wanted) is dict and got.keys() == wanted.keys():
            got = {key: got[key] for key in wanted}  # the order of ranks in a dict means nothing
        return difference(got, wanted, ordered=ordered, near=self.near)
