"""What is to be played again: the calls of each rank, in order, as far as the evidence goes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rankdrill.errors import UsageError
from rankdrill.step import DEFAULT_GROUP

__all__ = ["FORMAT", "Call", "End", "Part", "Score", "Tensor", "score_from_json"]

FORMAT = "rankdrill score"
VERSION = 1
_WORDS = ("group", "reduce_op", "key", "value", "via", "site", "touched")
_NUMBERS = ("root", "peer", "tag", "number")
_LISTS = ("sends", "receives")
_MOST = 1 << 40
_HOW = ("returned", "raised", "killed", "exited", "elsewhere", "")


@dataclass(frozen=True)
class Tensor:
    """One tensor of a call; with `strides` if it lies in memory otherwise than its indices do."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call:
    """One call of a rank, with what is known of its arguments.

    `root` and `peer` are global ranks, -1 where there is none; a `peer` of -2 is anybody. `via` is torch's public
    function where this is a part of it, `site` the line that called it. With `waits` false it was issued, and nobody
    has waited for it; `touched` says what was done to its memory meanwhile, ``wrote`` or ``read``. Of a store's call
    `key` is the key, and `value` what was written, if that is known. On the groups `then` it would have made the same
    call next, had it come out of this one.
    """

    op: str
    group: str = DEFAULT_GROUP
    tensors: tuple[Tensor, ...] = ()
    reduce_op: str = ""
    root: int = -1
    peer: int = -1
    tag: int = 0
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    members: tuple[int, ...] = ()
    key: str = ""
    value: str = ""
    via: str = ""
    site: str = ""
    waits: bool = True
    touched: str = ""
    number: int = field(default=-1, compare=False)  # of the group's collectives, from 0
    then: tuple[str, ...] = ()


@dataclass(frozen=True)
class End:
    """How a rank's part ends: it returned, raised, was killed by the signal `code` or exited with it, or was elsewhere,
    in no call at all, when the evidence ends. Empty: in its last call.
    """

    how: str = ""
    code: int = 0
    text: str = ""


@dataclass(frozen=True)
class Part:
    """What one rank does."""

    rank: int
    calls: tuple[Call, ...]
    end: End = End()


@dataclass(frozen=True)
class Score:
    """A run to be played again. `groups` are the members of its groups, in order of their making, without the default
    one; `verdict` is what was found, and has to come out again, or one of `besides`; `cut` says what was left out, and
    `assumed` what nobody has written down, a sentence each. `sides` are the ranks that did what cannot go together, and
    `ranks`, of a score that was cut down, what its ranks were.
    """

    world_size: int
    parts: tuple[Part, ...]
    groups: Mapping[str, tuple[int, ...]]
    verdict: str = ""
    cut: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    sides: tuple[tuple[int, ...], ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """Of what kind the verdict is."""
        return self.verdict.partition(":")[0]

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that it is about."""
        return tuple(map(int, re.findall(r"\d+", self.verdict.partition(":")[2])))

    @property
    def there(self) -> str:
        """The verdict in the numbers that ranks had where it was found, and what the culprits are here."""
        here = [rank for rank in self.culprits if rank < len(self.ranks)]
        if not here:
            return self.verdict
        were = ", ".join(str(self.ranks[rank]) for rank in here)
        return f"{self.kind}: {were}, which {'is' if len(here) == 1 else 'are'} {', '.join(map(str, here))} here"

    def members_of(self, group: str) -> tuple[int, ...]:
        """The ranks in `group`."""
        return self.groups.get(group) or tuple(range(self.world_size))

    def to_json(self) -> str:
        """As text, which `score_from_json` reads."""
        return json.dumps({"format": FORMAT, "version": VERSION, **self.as_fields()}, ensure_ascii=False)

    def as_fields(self) -> dict[str, Any]:
        """What `to_json` has, before it is text."""
        return asdict(self) | {"groups": dict(self.groups)}


def score_from_json(text: str) -> Score:
    """The score that `Score.to_json` wrote; it may come from anybody, and is nothing but data.

    Raises `UsageError` for what is none.
    """
    try:
        return _score(json.loads(text))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"this is no score: {type(error).__name__}: {error}") from None


def _score(said: Any) -> Score:
    size = _number(said["world_size"], 1, 1 << 16)
    parts = tuple(_part(each, size) for each in said["parts"])
    groups = {str(name): _ranks(ranks, size) for name, ranks in dict(said["groups"]).items()}
    cut, assumed, besides = (tuple(map(str, said.get(name, ()))) for name in ("cut", "assumed", "besides"))
    sides = tuple(_ranks(side, size) for side in said.get("sides", ()))
    ranks = tuple(_number(rank, 0, _MOST) for rank in said.get("ranks", ()))
    if ranks and len(ranks) != size:
        raise ValueError(f"ranks names {len(ranks)} of {size}")
    verdict = str(said.get("verdict", ""))
    return Score(size, parts, groups, verdict, cut, assumed, besides, sides, ranks)


def _part(said: Any, size: int) -> Part:
    end = said.get("end") or {}
    how = end.get("how", "")
    if how not in _HOW:
        raise ValueError(f"an end is one of {', '.join(filter(None, _HOW))}, not {how!r}")
    ended = End(how, _number(end.get("code", 0), -255, 255), str(end.get("text", "")))
    return Part(_number(said["rank"], 0, size - 1), tuple(_call(each, size) for each in said["calls"]), ended)


def _call(said: Any, size: int) -> Call:
    op = str(said["op"])
    if not op.isidentifier():
        raise ValueError(f"{op!r} is the name of no call")
    words = {name: str(said[name]) for name in _WORDS if name in said}
    numbers = {name: _number(said[name], -3, _MOST) for name in _NUMBERS if name in said}
    lists = {name: tuple(_number(each, 0, _MOST) for each in said[name]) for name in _LISTS if name in said}
    more: dict[str, Any] = {**words, **numbers, **lists}
    tensors, members = tuple(map(_tensor, said.get("tensors", ()))), _ranks(said.get("members", ()), size)
    return Call(op, tensors=tensors, members=members, waits=bool(said.get("waits", True)), **more)


def _tensor(said: Any) -> Tensor:
    dtype = str(said["dtype"])
    if not re.fullmatch(r"[a-z][a-z0-9_]*", dtype):
        raise ValueError(f"{dtype!r} is the name of no dtype")
    strides = tuple(_number(stride, 0, _MOST) for stride in said.get("strides", ()))
    return Tensor(dtype, tuple(_number(length, 0, _MOST) for length in said["shape"]), strides)


def _ranks(said: Any, size: int) -> tuple[int, ...]:
    return tuple(_number(rank, 0, size - 1) for rank in said)


def _number(said: Any, least: int, most: int) -> int:
    if type(said) is not int or not least <= said <= most:
        raise ValueError(f"{said!r} is no whole number from {least} to {most}")
    return said
