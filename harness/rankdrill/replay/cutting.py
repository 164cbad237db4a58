"""A score cut down to some of its ranks: renumbered, with their groups, and the calls that they make together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from rankdrill.diagnosis import name_ranks
from rankdrill.replay.needed import needed
from rankdrill.replay.score import Call, Part, Score, Tensor
from rankdrill.step import DEFAULT_GROUP, NEW_GROUP

__all__ = ["cut_down", "fitted"]

_Value = TypeVar("_Value")

_LISTS = frozenset({"reduce_scatter", "scatter", "all_to_all"})  # of which every rank gives a tensor for each
_SLICED = frozenset({"reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_to_all_single"})
_WANTING = frozenset({"get", "wait"})


def fitted(score: Score, most: int) -> Score:
    """`score`, cut down to the ranks that its verdict needs if it has more than `most`."""
    if score.world_size <= most:
        return score
    return cut_down(score, needed(score.world_size, most, score.culprits, score.sides))


def cut_down(score: Score, kept: Sequence[int]) -> Score:
    """`score` of the ranks `kept` alone, in their order; it says what was left out, and who is who."""
    if len(kept) >= score.world_size:
        return score
    return _Cut(score, tuple(kept)).made()


@dataclass(frozen=True)
class _Cut:
    score: Score
    kept: tuple[int, ...]

    def made(self) -> Score:
        score = self.score
        groups = {name: self._here(members) for name, members in score.groups.items() if self._stays(name)}
        parts = tuple(
            Part(self._places[part.rank], tuple(self._calls(part)), part.end)
            for part in sorted(score.parts, key=lambda part: part.rank)
            if part.rank in self._places
        )
        besides = tuple(verdict for verdict in score.besides if {*_ranks_in(verdict)} <= {*self.kept})
        return replace(
            score,
            world_size=len(self.kept),
            parts=parts,
            groups=groups,
            verdict=self._verdict(score.verdict),
            besides=tuple(map(self._verdict, besides)),
            sides=tuple(map(self._here, score.sides)),
            cut=(*self._told(), *score.cut),
            ranks=tuple(score.ranks[rank] if score.ranks else rank for rank in self.kept),
        )

    @cached_property
    def _places(self) -> Mapping[int, int]:
        """What each rank is here."""
        return {rank: place for place, rank in enumerate(self.kept)}

    def _here(self, ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._places[rank] for rank in ranks if rank in self._places)

    def _members(self, group: str) -> tuple[int, ...]:
        return self.score.members_of(group)

    def _stays(self, group: str) -> bool:
        """Whether there are members left that meet there."""
        return group == DEFAULT_GROUP or len(self._here(self._members(group))) > 1

    @cached_property
    def _written(self) -> frozenset[str]:
        """The keys of the store that somebody who is kept sets."""
        kept = (part for part in self.score.parts if part.rank in self._places)
        return frozenset(call.key for part in kept for call in part.calls if call.key and call.op not in _WANTING)

    @cached_property
    def _known(self) -> frozenset[str]:
        """Those that anybody sets who has a part."""
        return frozenset(
            call.key for part in self.score.parts for call in part.calls if call.key and call.op not in _WANTING
        )

    @cached_property
    def _roots(self) -> Mapping[tuple[str, int], int]:
        """Who is the root here for one that was cut off, by group: another for another, where there are so many."""
        asked: dict[str, list[int]] = {}
        for part in self.score.parts:
            for call in part.calls if part.rank in self._places else ():
                if call.root >= 0 and call.root not in asked.setdefault(call.group, []):
                    asked[call.group].append(call.root)
        found = {}
        for group, roots in asked.items():
            here = self._here(self._members(group)) or (0,)
            taken = [self._places[root] for root in roots if root in self._places]
            free = [place for place in here if place not in taken] or list(here)
            for number, root in enumerate(root for root in roots if root not in self._places):
                found[group, root] = free[number % len(free)]
        return found

    def _calls(self, part: Part) -> Iterator[Call]:
        for call in part.calls:
            if call.key:
                if call.op not in _WANTING or call.key in self._written or call.key not in self._known:
                    yield call
            elif call.op == NEW_GROUP:
                if len(members := self._here(call.members)) > 1:
                    yield replace(call, members=members)
            elif self._stays(call.group) and (call.peer < 0 or call.peer in self._places):
                yield self._call(call)

    def _call(self, call: Call) -> Call:
        old = self._members(call.group)
        places = [place for place, member in enumerate(old) if member in self._places]
        sends, receives = (_some(each, places) for each in (call.sends, call.receives))
        root = self._places.get(call.root, self._roots.get((call.group, call.root), -1)) if call.root >= 0 else -1
        peer = self._places[call.peer] if call.peer >= 0 else call.peer
        tensors = call.tensors
        if call.op in _LISTS and len(tensors) == len(old):
            tensors = tuple(_some(tensors, places))
        elif sends:
            tensors = tuple(Tensor(each.dtype, (sum(sends), *each.shape[1:])) for each in tensors)
        elif call.op in _SLICED:
            tensors = tuple(_sliced(each, len(old), len(places)) for each in tensors)
        return replace(call, tensors=tensors, root=root, peer=peer, sends=sends, receives=receives)

    def _verdict(self, verdict: str) -> str:
        kind, colon, _ = verdict.partition(": ")
        ranks = _ranks_in(verdict)
        return f"{kind}{colon}{', '.join(map(str, self._here(ranks)))}" if ranks else verdict

    def _told(self) -> Iterator[str]:
        those = self.score.ranks or range(self.score.world_size)
        there = [those[rank] for rank in self.kept]
        out = self.score.world_size - len(there)
        culprits = [rank for rank in self.score.culprits if rank in self._places]
        at_fault = ", ".join(f"rank {those[rank]} is {self._places[rank]}" for rank in culprits)
        who = f"; {at_fault}" if culprits else ""
        yield f"{out} of {self.score.world_size} ranks are left out: {_who_is_who(there)}{who}"
        if more := [rank for rank in self.score.culprits if rank not in self._places]:
            yield f"{len(more)} more that are left out did as {name_ranks(self._here(culprits))} here"
        if any(not self._stays(name) for name in self.score.groups):
            yield "groups that less than two of these ranks are in are left out, and what was called there"


def _who_is_who(there: Sequence[int]) -> str:
    if list(there) == list(range(there[0], there[0] + len(there))) and len(there) > 2:
        return f"ranks {there[0]} to {there[-1]} are 0 to {len(there) - 1} here"
    return f"ranks {', '.join(map(str, there))} are {', '.join(map(str, range(len(there))))} here"


def _ranks_in(verdict: str) -> list[int]:
    words = verdict.partition(": ")[2].split(", ")
    return [int(word) for word in words if word.isdigit()]


def _some(values: Sequence[_Value], places: Sequence[int]) -> tuple[_Value, ...]:
    return tuple(values[place] for place in places if place < len(values))


def _sliced(tensor: Tensor, old: int, new: int) -> Tensor:
    """With as much for each of `new` ranks as each of `old` had."""
    if not tensor.shape:
        return tensor
    each, rest = divmod(tensor.shape[0], old)
    return Tensor(tensor.dtype, ((each * new or new) + rest, *tensor.shape[1:]))
