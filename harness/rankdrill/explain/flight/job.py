"""All dumps of a job together: every entry as one row of numbers, and the groups with their members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rankdrill.explain.flight.agreed import family, marks_of, meets_all, shown
from rankdrill.explain.flight.columns import COLUMNS, COMPLETED, STARTED, UNTOLD, Call, Columns, Group, Tables
from rankdrill.explain.flight.numbering import counted_anew
from rankdrill.step import DEFAULT_GROUP, Kind, Site, Step

__all__ = ["Dump", "Job", "JobGroup", "make_job"]

_DEFAULT_DESC = "default_pg"
_NO_DESC = frozenset({"", "undefined", _DEFAULT_DESC})
_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Dump:
    """What one file holds: of `rank` the `columns`, or why there are none. `written_ns` is when it was last changed."""

    rank: int
    name: str
    columns: Columns | None
    error: str = ""
    written_ns: int = 0


@dataclass(frozen=True)
class JobGroup:
    """A group: what messages call it, its members by group rank, and whether a dump tells them or they are derived."""

    label: str
    members: tuple[int, ...]
    told: bool


@dataclass(frozen=True)
class Job:
    """What all dumps say. `rows` has a column ``rank`` and those of `columns.COLUMNS`, in each rank's own order.

    Of the groups in `unnumbered` nobody knows which call of one rank is which of another's.
    """

    world_size: int
    dumps: Mapping[int, Dump]
    groups: Sequence[JobGroup]
    calls: Sequence[Call]
    sites: Sequence[Site | None]
    rows: Mapping[str, _Array]
    unnumbered: frozenset[int] = frozenset()

    @cached_property
    def written_ns(self) -> int:
        """When the newest dump was written, as far as its file says."""
        return max((dump.written_ns for dump in self.dumps.values()), default=0)

    @cached_property
    def is_gloo(self) -> _Array:
        """Of each row, whether it is one of gloo's, whose states never advance."""
        return np.array([call.backend == "gloo" for call in self.calls] or [False], np.bool_)[self.rows["call"]]

    @cached_property
    def silent(self) -> _Array:
        """Of each row, whether its state never advances: of gloo, and of TorchComms where devices have no events."""
        advanced, over = (np.zeros(self.world_size, np.bool_) for _ in range(2))
        np.logical_or.at(advanced, self.rows["rank"], self.rows["state"] >= STARTED)
        np.logical_or.at(over, self.rows["rank"], self.rows["retired"])
        return self.is_gloo | (over & ~advanced)[self.rows["rank"]]

    @cached_property
    def pending(self) -> _Array:
        """Of each row, whether the call had not ended; gloo says no more than that it is, or that it is over."""
        return np.where(self.silent, ~self.rows["retired"], self.rows["state"] != COMPLETED)

    @cached_property
    def proves(self) -> _Array:
        """Of each row, whether it says that all members have come to its call: nobody ends it before."""
        sync = np.array([meets_all(call) for call in self.calls] or [False], np.bool_)[self.rows["call"]]
        over = np.where(self.silent, self.rows["retired"] & self._went_on, self.rows["state"] == COMPLETED)
        return sync & over & ~self.rows["p2p"]

    @cached_property
    def _went_on(self) -> _Array:
        """Of each row, whether its rank made another call behind it: on gloo one that failed is over, too."""
        pairs, inverse = self._pairs
        return self.rows["seq"] < self._last[inverse] if len(pairs) else np.zeros(0, np.bool_)

    @cached_property
    def _pairs(self) -> tuple[_Array, _Array]:
        """The pairs of rank and group that are there, as one number each, and of each row which it is of."""
        pair = self.rows["rank"].astype(np.int64) * len(self.groups) + self.rows["group"]
        pairs, inverse = np.unique(pair, return_inverse=True)
        return pairs, inverse

    @cached_property
    def _last(self) -> _Array:
        pairs, inverse = self._pairs
        found = np.full(len(pairs), -1, np.int64)
        collective = ~self.rows["p2p"]
        np.maximum.at(found, inverse[collective], self.rows["seq"][collective])
        return found

    @cached_property
    def last(self) -> Mapping[tuple[int, int], int]:
        """The number of the last collective by rank and group, where there is one."""
        pairs, _ = self._pairs
        count = len(self.groups)
        listed = zip(pairs.tolist(), self._last.tolist(), strict=True)
        return {(pair // count, pair % count): last for pair, last in listed if last >= 0}

    def last_of(self, rank: int, group: int) -> int:
        """The number of the last collective that `rank` has called on `group`, as its dump says; -1 for none."""
        return self.last.get((rank, group), -1)

    @cached_property
    def agreed(self) -> _Array:
        """Of each row a number that is the same for calls that go together."""
        known: dict[object, int] = {}
        numbers = [known.setdefault(marks_of(call), len(known)) for call in self.calls]
        return np.array(numbers or [0], np.int32)[self.rows["call"]]

    @cached_property
    def bounds(self) -> Mapping[int, tuple[int, int]]:
        """Where each rank's rows begin and end."""
        ranks = self.rows["rank"]
        starts = np.searchsorted(ranks, np.arange(self.world_size + 1))
        return {rank: (int(starts[rank]), int(starts[rank + 1])) for rank in range(self.world_size)}

    def call_at(self, row: int) -> Call:
        return self.calls[int(self.rows["call"][row])]

    def site_at(self, row: int) -> Site | None:
        return self.sites[int(self.rows["site"][row])]

    def step_at(self, row: int) -> Step:
        """The row as a step, for what compares those of ledgers."""
        call = self.call_at(row)
        return Step(
            Kind.COLLECTIVE,
            family(call),
            self.groups[int(self.rows["group"][row])].label,
            shown(call),
            sequence=int(self.rows["seq"][row]),
            site=self.site_at(row),
            digest=int(self.agreed[row]),
        )

    def rows_of(self, rank: int, group: int) -> _Array:
        """The collectives of one rank on one group, in order."""
        first, end = self.bounds[rank]
        mine = ~self.rows["p2p"][first:end] & (self.rows["group"][first:end] == group)
        return first + np.flatnonzero(mine)

    def untold(self, rank: int) -> int | None:
        """The first message that `rank` is in and of which no dump tells who it is for; None where there is none."""
        first, end = self.bounds[rank]
        mine = self.pending[first:end] & self.rows["p2p"][first:end]
        return next((first + at for at in np.flatnonzero(mine).tolist() if self.call_at(first + at).op in UNTOLD), None)

    def advances(self, rank: int) -> bool:
        """Whether the rank's dump tells which calls have begun on the device."""
        first, end = self.bounds[rank]
        return bool((self.rows["state"][first:end] >= STARTED).any())


def make_job(dumps: Sequence[Dump], tables: Tables) -> Job:
    """The job of `dumps`, one for each rank that has one, whose columns speak of `tables`."""
    by_rank = {dump.rank: dump for dump in sorted(dumps, key=lambda dump: dump.rank)}
    read = [(rank, dump.columns) for rank, dump in by_rank.items() if dump.columns is not None]
    members = tables.members.keys
    world_size = max([*by_rank, *map(max, members)], default=-1) + 1
    arrays = {name: _joined([columns.arrays[name] for _, columns in read], kind) for name, kind in COLUMNS.items()}
    arrays["rank"] = np.repeat(np.array([rank for rank, _ in read], np.int32), [len(columns) for _, columns in read])
    groups, arrays["group"] = _groups(read, tables.group.keys, members, arrays, world_size)
    whole = np.repeat([not columns.wrapped for _, columns in read], [len(columns) for _, columns in read]).astype(bool)
    arrays["seq"], unnumbered = counted_anew(arrays, len(groups), whole)
    arrays["p2p"] = arrays["p2p"] | np.isin(arrays["group"], list(unnumbered))  # their numbers are not compared
    return Job(world_size, by_rank, groups, tables.call.keys, tables.site.keys, arrays, unnumbered)


def _joined(parts: Sequence[_Array], kind: Any) -> _Array:
    return np.concatenate([np.zeros(0, kind), *parts])


def _groups(
    read: Sequence[tuple[int, Columns]],
    groups: Sequence[Group],
    members: Sequence[tuple[int, ...]],
    arrays: Mapping[str, _Array],
    world_size: int,
) -> tuple[list[JobGroup], _Array]:
    """The groups, and for each row which it is of: torch may give groups with different members one name."""
    users: dict[tuple[int, int | None], list[int]] = {}
    places: dict[object, int] = {}
    parts = []
    at = 0
    elsewhere = _told_once(read)
    for rank, columns in read:
        mine = arrays["group"][at : at + len(columns)]
        at += len(columns)
        renumbered = np.zeros(len(columns), np.int32)
        for number in np.unique(mine).tolist():
            name = groups[number].name
            key = number, columns.groups.get(name, elsewhere.get(name))
            users.setdefault(key, []).append(rank)
            renumbered[mine == number] = places.setdefault(key, len(places))
        parts.append(renumbered)
    made = [
        JobGroup("", _derived(groups[number], ranks, world_size) if told is None else members[told], told is not None)
        for (number, told), ranks in users.items()
    ]
    labels = _labels([groups[number] for number, _ in users], made)
    named = [JobGroup(label, group.members, group.told) for label, group in zip(labels, made, strict=True)]
    return named, _joined(parts, np.int32)


def _told_once(read: Sequence[tuple[int, Columns]]) -> dict[str, int]:
    """The members of groups of which all dumps that know them say the same."""
    found: dict[str, set[int]] = {}
    for _, columns in read:
        for name, members in columns.groups.items():
            found.setdefault(name, set()).add(members)
    return {name: next(iter(members)) for name, members in found.items() if len(members) == 1}


def _is_default(group: Group) -> bool:
    return group.desc == _DEFAULT_DESC or (group.name == "0" and group.desc in _NO_DESC)


def _derived(group: Group, users: Sequence[int], world_size: int) -> tuple[int, ...]:
    """Those that called there; and in a world of two both, since alone a rank waits for nobody."""
    return tuple(range(world_size)) if _is_default(group) or world_size == 2 else tuple(sorted(users))


def _labels(groups: Sequence[Group], made: Sequence[JobGroup]) -> list[str]:
    """What messages call each: what the user called it, with torch's name where that is not enough."""
    plain = [
        DEFAULT_GROUP if _is_default(group) else group.name if group.desc in _NO_DESC else group.desc
        for group in groups
    ]
    times = Counter(plain)
    told = [
        f"{label} {group.name}" if times[label] > 1 and label != group.name else label
        for label, group in zip(plain, groups, strict=True)
    ]
    times = Counter(told)
    return [
        f"{label} of {min(group.members, default=0)}…" if times[label] > 1 else label
        for label, group in zip(told, made, strict=True)
    ]
