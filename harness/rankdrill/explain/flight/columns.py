"""One dump as columns of numbers: what 2 000 entries say takes 70 kB, and can be compared by the million."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from rankdrill.errors import DumpError
from rankdrill.explain.flight.digests import of_identities, of_shapes
from rankdrill.explain.flight.frames import site_of
from rankdrill.step import Site

__all__ = [
    "COLUMNS",
    "COMPLETED",
    "ENTRY",
    "MOST_RANKS",
    "SCHEDULED",
    "STARTED",
    "UNTOLD",
    "Call",
    "Columns",
    "Group",
    "Table",
    "Tables",
    "columns_of",
    "numbered",
    "of_arrays",
]

SCHEDULED, STARTED, COMPLETED = 0, 1, 2  # on NCCL; on gloo every entry stays scheduled
_STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
COLUMNS = {
    "group": np.int32,  # index into the table of groups
    "call": np.int32,  # index into the table of calls
    "site": np.int32,  # index into the table of call sites
    "seq": np.int64,  # the group's number of the collective, from 1
    "record": np.int64,  # the rank's number of the entry
    "created": np.int64,  # nanoseconds since the epoch, by the rank's own clock
    "state": np.int8,
    "retired": np.bool_,
    "p2p": np.bool_,
}
MOST_RANKS = 1 << 17  # of a job that are believed in
_MOST_THINGS = 1 << 24  # of all entries in one field: tensors, say, their sizes, letters of names
_MOST_TENSORS = 4096  # of one call, that are told apart
UNTOLD = frozenset({"send", "recv", "batch_op_issue"})
"""TorchComms's messages, of which it does not record who they are for."""
_PEERS = re.compile(r"(send|recv) (\d{1,9})(->|<-)(\d{1,9})$")
ENTRY = (
    "process_group", "profiling_name", "collective_seq_id", "record_id", "time_created_ns", "state", "retired",
    "is_p2p", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes", "frames",
)  # fmt: skip

_Key = TypeVar("_Key", bound=Hashable)
_Alike: TypeAlias = "Sequence[Any] | npt.NDArray[np.uint64]"
"""Of each entry something, which others that say the same have too."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as an entry names it."""

    name: str
    desc: str


@dataclass(frozen=True, slots=True)
class Call:
    """What an entry says of a call: sizes are those of each tensor. `source` and `target` are group ranks, or -1."""

    backend: str
    op: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    input_dtypes: str
    output_dtypes: str
    source: int = -1
    target: int = -1


@dataclass
class Table(Generic[_Key]):
    """Things by number, each once."""

    known: dict[_Key, int] = field(default_factory=dict)

    def number(self, key: _Key) -> int:
        return self.known.setdefault(key, len(self.known))

    @property
    def keys(self) -> list[_Key]:
        return list(self.known)


@dataclass(frozen=True)
class Columns:
    """One dump. `groups` are the members it tells of by the group's name, as numbers in the table of members;
    `wrapped` says that its oldest entries are gone.
    """

    version: str
    groups: Mapping[str, int]
    arrays: Mapping[str, npt.NDArray[Any]]
    wrapped: bool

    def __len__(self) -> int:
        return len(self.arrays["seq"])


@dataclass
class Tables:
    """What the columns of many dumps speak of. Members are global ranks in the order of their group ranks."""

    group: Table[Group] = field(default_factory=Table)
    call: Table[Call] = field(default_factory=Table)
    site: Table[Site | None] = field(default_factory=Table)
    members: Table[tuple[int, ...]] = field(default_factory=Table)
    told: dict[str, int] = field(default_factory=dict)
    """The numbers of members by the text that tells them: of a large job it is long, and in every dump."""


def columns_of(data: Mapping[str, Any], tables: Tables) -> Columns:
    """The dump `data`, which speaks of `tables` then; raises `DumpError` where it makes no sense."""
    entries = data.get("entries", [])
    if type(entries) is not list or set(map(type, entries)) - {dict}:
        raise DumpError("is damaged: its entries are no list of entries")
    try:
        arrays = _arrays(entries, tables)
    except KeyError as error:
        raise DumpError("is damaged: an entry is in no state that there is") from error
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DumpError(f"is damaged: an entry's fields are not what they should be: {error}") from error
    return of_arrays(arrays, data.get("version"), data.get("pg_config"), tables)


def of_arrays(arrays: Mapping[str, npt.NDArray[Any]], version: Any, config: Any, tables: Tables) -> Columns:
    """A dump with these columns, and what else it says of itself and of its groups."""
    record = arrays["record"]
    whole = not len(record) or record[0] == 0
    told = _members(config, tables)
    return Columns(version if type(version) is str else "", told, arrays, wrapped=not whole)


def _arrays(entries: Sequence[dict[str, Any]], tables: Tables) -> dict[str, npt.NDArray[Any]]:
    if not entries:
        return {name: np.zeros(0, kind) for name, kind in COLUMNS.items()}
    read = _read(entries)
    _may_look(dict(zip(ENTRY, read, strict=True)))
    names, ops, seqs, records, times, states, retired, p2p, *tensors, stacks = read
    return numbered(
        (list(map("\0".join, names)), _alike_calls(ops, *tensors), of_identities(stacks)),
        lambda at: dict(zip(ENTRY, (column[at] for column in read), strict=True)),
        {
            "seq": _integers(seqs),
            "record": _integers(records),
            "created": _integers(times),
            "state": np.array(bytearray(map(_STATES.__getitem__, _all_of(str, states))), np.int8),
            "retired": np.array(bytearray(_all_of(bool, retired)), np.bool_),
            "p2p": np.array(bytearray(_all_of(bool, p2p)), np.bool_),
        },
        tables,
    )


def numbered(
    alike: tuple[_Alike, _Alike, _Alike],
    entry: Callable[[int], Mapping[str, Any]],
    arrays: Mapping[str, npt.NDArray[Any]],
    tables: Tables,
) -> dict[str, npt.NDArray[Any]]:
    """All columns, of those that are there as they are: with the numbers of groups, calls and sites in `tables`.

    `alike` tells by what entries have the same of these three; `entry` reads one, of those that have.
    """
    groups, calls, sites = alike
    made = {
        "group": _numbers(groups, lambda at: _group(entry(at)), tables.group),
        "call": _numbers(calls, lambda at: _call(entry(at)), tables.call),
        "site": _numbers(sites, lambda at: site_of(entry(at)["frames"]), tables.site),
        **arrays,
    }
    messages = [call.source >= 0 or call.op in UNTOLD for call in tables.call.known]
    made["p2p"] = made["p2p"] | np.array(messages, np.bool_)[made["call"]]
    _of_coalesced(made, tables.call.keys)
    return made


def _may_look(columns: Mapping[str, Sequence[Any]]) -> None:
    """Raises `DumpError` where more stands in these columns than any dump has: a pickle may say in two bytes that what
    it has said stands here once more.
    """
    for name in ("process_group", "input_dtypes", "output_dtypes", "input_sizes", "output_sizes", "frames"):
        inner = chain.from_iterable(columns[name])
        if sum(map(len, columns[name])) > _MOST_THINGS or (name != "frames" and sum(map(len, inner)) > _MOST_THINGS):
            raise DumpError(f"repeats itself: its entries' {name} are more than {_MOST_THINGS >> 20} Mi of things")


def _all_of(kind: type, values: Sequence[Any]) -> Sequence[Any]:
    """`values`, each of which is of that very type: anything else might be as deep as one likes."""
    if set(map(type, values)) - {kind}:
        raise TypeError(f"fields are not all {kind.__name__}")
    return values


def _read(entries: Sequence[dict[str, Any]]) -> list[Sequence[Any]]:
    """The columns as they are, with what a version does not have filled in."""
    try:
        return list(zip(*map(itemgetter(*ENTRY), entries), strict=True))
    except KeyError:
        return [_column(name, entries) for name in ENTRY]


def _column(name: str, entries: Sequence[dict[str, Any]]) -> list[Any]:
    match name:
        case "collective_seq_id":  # before 2.0 all calls had one number
            return [entry.get(name, entry.get("seq_id", 0)) for entry in entries]
        case "process_group":
            return [entry.get(name) or (_old_name(entry), "undefined") for entry in entries]
        case "record_id":
            return [entry.get(name, place) for place, entry in enumerate(entries)]
        case "time_created_ns":
            return [entry.get(name, 0) for entry in entries]
        case "state":
            return [entry.get(name, "scheduled") for entry in entries]
        case "retired" | "is_p2p":
            return [entry.get(name, False) for entry in entries]
        case "profiling_name":
            return [entry.get(name, "") for entry in entries]
        case _:
            return [entry.get(name, []) for entry in entries]


def _old_name(entry: Mapping[str, Any]) -> str:
    name = entry.get("pg_name", entry.get("pg_id", 0))
    return str(name) if type(name) in (int, str) else ""


def _integers(values: Iterable[Any]) -> npt.NDArray[Any]:
    return np.array(array("q", values), np.int64)  # refuses what is no integer, or too large


def _alike_calls(ops: Sequence[str], *tensors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Of each entry what tells its call from others: nothing in it is deeper than a text, whatever the file holds."""
    inputs, outputs, input_dtypes, output_dtypes = tensors
    dtypes = map(",".join, input_dtypes), map(",".join, output_dtypes)
    shapes = of_shapes(inputs).tolist(), of_shapes(outputs).tolist()
    return list(zip(_all_of(str, ops), *shapes, *dtypes, strict=True))


def _numbers(alike: _Alike, make: Callable[[int], Hashable], table: Table[Any]) -> npt.NDArray[np.int32]:
    """The numbers of what `make` makes of entries, of which it is asked for one of those that are `alike`."""
    if isinstance(alike, np.ndarray):
        _, firsts, which = np.unique(alike, return_index=True, return_inverse=True)
        numbers = np.zeros(len(firsts), np.int32)
        for each in np.argsort(firsts).tolist():
            numbers[each] = table.number(make(int(firsts[each])))
        return numbers[which]
    places = dict(zip(alike, range(len(alike)), strict=True))
    own = {key: table.number(make(place)) for key, place in places.items()}
    return np.fromiter(map(own.__getitem__, alike), np.int32, len(alike))


def _group(entry: Mapping[str, Any]) -> Group:
    name, desc = (*entry["process_group"], "", "")[:2]
    op = entry["profiling_name"]
    return Group(name, "" if desc == op.partition(":")[0] else desc)  # TorchComms describes it by its backend


def _call(entry: Mapping[str, Any]) -> Call:
    backend, _, op = entry["profiling_name"].rpartition(":")
    message = _PEERS.match(op)
    source = target = -1
    if message is not None:
        op, one, _, other = message.groups()
        source, target = (int(one), int(other)) if op == "send" else (int(other), int(one))
    inputs, outputs = (tuple(map(tuple, entry[name][:_MOST_TENSORS])) for name in ("input_sizes", "output_sizes"))
    dtypes, more_dtypes = (",".join(entry[name]) for name in ("input_dtypes", "output_dtypes"))
    return Call(backend, op, inputs, outputs, dtypes, more_dtypes, source, target)


def _of_coalesced(made: dict[str, npt.NDArray[Any]], calls: Sequence[Call]) -> None:
    """Give the parts of a coalesced call its state: torch follows the whole alone, which comes last."""
    whole = np.array([call.op.lower().endswith("coalesced") for call in calls], np.bool_)[made["call"]]
    for at in np.flatnonzero(whole).tolist():
        first = at
        while first and not whole[first - 1] and made["state"][first - 1] == SCHEDULED and _alike(made, first - 1, at):
            first -= 1
        made["state"][first:at] = made["state"][at]
        made["retired"][first:at] = made["retired"][at]


def _alike(made: Mapping[str, npt.NDArray[Any]], part: int, whole: int) -> bool:
    same_kind = made["p2p"][part] == made["p2p"][whole]
    same_seq = made["p2p"][whole] or made["seq"][part] == made["seq"][whole]
    return bool(same_kind and same_seq and made["group"][part] == made["group"][whole])


def _members(config: Any, tables: Tables) -> dict[str, int]:
    found = {}
    for name, told in config.items() if type(config) is dict else ():
        ranks = told.get("ranks") if type(told) is dict else None
        number = tables.told.get(ranks) if type(ranks) is str else None
        if number is None:
            members = _ranks(ranks)
            if type(name) is not str or not members:
                continue
            number = tables.members.number(members)
            if type(ranks) is str:
                tables.told[ranks] = number
        if type(name) is str:
            found[name] = number
    return found


def _ranks(told: Any) -> tuple[int, ...]:
    """``"[0, 1]"``, or a list."""
    if type(told) is str and len(told) < 1 << 20:
        listed = [int(each) for each in re.findall(r"\d{1,9}", told)]
    elif type(told) is list:
        listed = [each for each in told if type(each) is int]
    else:
        return ()
    return tuple(dict.fromkeys(each for each in listed if 0 <= each < MOST_RANKS))
