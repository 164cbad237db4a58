"""Dumps of torch's flight recorder as jobs on NCCL leave them, made without a GPU.

Programs of ranks are played on a device that does as NCCL's does: one call of a rank after the other, each until all
members have come, in their own order. Ranks may issue calls `ahead` of their device, as the CPU does. What is recorded
has the fields, spelling and order of torch's `FlightRecorderDetail.hpp`, as its versions have them; the pickles are
written as torch's C++ pickler writes them: protocol 2, texts and shared frames kept for later, nothing else.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from rankdrill.explain.flight.columns import Columns

__all__ = ["VERSIONS", "Flight", "Op", "as_torchcomms", "dump_of", "recv", "send", "told", "torch_pickle", "write"]

VERSIONS = ("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11")
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
# In which version a field of an entry came; `is_p2p` and the like of older torch have other names or none.
_SINCE = {"is_p2p": (2, 3), "timeout_ms": (2, 3), "input_dtypes": (2, 2), "output_dtypes": (2, 2), "thread_id": (2, 8)}
_SINCE |= {"thread_name": (2, 8), "retired": (2, 1)}


@dataclass(frozen=True)
class Op:
    """A call of a rank's program on `group`. `line` is where; a `peer` makes it a message."""

    name: str
    group: str = "0"
    sizes: tuple[tuple[int, ...], ...] = ((4,),)
    dtype: str = "Float"
    line: int = 10
    peer: int | None = None
    outputs: tuple[tuple[int, ...], ...] | None = None


def send(peer: int, group: str = "0", line: int = 20) -> Op:
    """A send to the group rank `peer`."""
    return Op("send", group, line=line, peer=peer)


def recv(peer: int, group: str = "0", line: int = 21) -> Op:
    """A receive from the group rank `peer`."""
    return Op("recv", group, line=line, peer=peer)


@dataclass
class _Entry:
    op: Op
    seq: int
    p2p_seq: int
    op_id: int
    record: int
    created: int
    state: str = "scheduled"
    part: bool = False  # of a coalesced call, whose state torch never follows


@dataclass
class Flight:
    """Ranks with programs, on `groups` by name with description and members; `play` fills `entries`.

    `ahead` is how many calls a rank issues that its device has not ended; 0 is to wait for each. Who is `gone` leaves
    no dump. `until` ends what a rank does, after so many calls: it is elsewhere then.
    """

    programs: Mapping[int, Sequence[Op]]
    groups: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    ahead: int = 0
    version: str = "2.10"
    ring: int = 2000
    gone: frozenset[int] = frozenset()
    until: Mapping[int, int] = field(default_factory=dict)
    backend: str = "nccl"
    entries: dict[int, list[_Entry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        world = tuple(sorted(self.programs))
        self.groups = {"0": ("default_pg", world), **self.groups}
        self.entries = {rank: [] for rank in self.programs}
        self._ended = dict.fromkeys(self.programs, 0)
        self._counts: dict[tuple[int, str, bool], int] = {}
        self.play()

    def play(self) -> None:
        """Until nobody can go on."""
        moved, now = True, START_NS
        while moved:
            moved = False
            for rank, program in self.programs.items():
                mine = self.entries[rank]
                unfinished = len(mine) - self._ended[rank]
                limit = min(len(program), self.until.get(rank, len(program)))
                if len(mine) < limit and unfinished <= self.ahead:
                    if unfinished and not self.ahead:
                        continue
                    now += STEP_NS
                    mine.append(self._issue(rank, program[len(mine)], now))
                    moved = True
            moved |= self._run()

    def _issue(self, rank: int, op: Op, now: int) -> _Entry:
        key = rank, op.group, op.peer is None
        self._counts[key] = self._counts.get(key, 0) + 1
        collectives, messages = (self._counts.get((rank, op.group, own), 0) for own in (True, False))
        return _Entry(op, collectives, messages, collectives + messages, len(self.entries[rank]), now)

    def _run(self) -> bool:
        moved = False
        at = {
            rank: mine[self._ended[rank]] if self._ended[rank] < len(mine) else None
            for rank, mine in self.entries.items()
        }
        for entry in at.values():
            if entry is not None and entry.state == "scheduled":
                entry.state = "started"
                moved = True
        for rank, entry in at.items():
            if entry is not None and entry.state == "started":
                for each in self._others(rank, entry, at) or ():
                    each.state = entry.state = "completed"
                    moved = True
        for rank, entry in at.items():
            self._ended[rank] += entry is not None and entry.state == "completed"
        return moved

    def _others(self, rank: int, entry: _Entry, at: Mapping[int, _Entry | None]) -> list[_Entry] | None:
        """The entries with which it completes, if all are on their devices."""
        _, members = self.groups[entry.op.group]
        if entry.op.peer is not None:
            peer = members[entry.op.peer]
            other = at[peer]
            opposite = "recv" if entry.op.name == "send" else "send"
            fits = (
                other is not None and other.state == "started" and other.op.name == opposite
                and other.op.group == entry.op.group and members[other.op.peer or 0] == rank
            )  # fmt: skip
            return [other] if fits and other is not None else None
        others = [at.get(member) for member in members]
        if any(other is None or other.op.peer is not None or not _meets(entry, other) for other in others):
            return None
        return [other for other in others if other is not None]

    def dump(self, rank: int) -> dict[str, Any]:
        """What the rank's recorder holds at the end."""
        return dump_of(self, rank)


def _meets(entry: _Entry, other: _Entry) -> bool:
    one, two = entry.op, other.op
    same = (one.group, entry.seq, one.name) == (two.group, other.seq, two.name) and other.state == "started"
    return same and sum(map(prod, one.sizes)) == sum(map(prod, two.sizes))


def dump_of(flight: Flight, rank: int) -> dict[str, Any]:
    """The dump of `rank`, as its version writes it."""
    number = tuple(map(int, flight.version.split(".")))
    frames: dict[int, list[dict[str, Any]]] = {}
    entries = [_as_written(flight, rank, entry, number, frames) for entry in flight.entries[rank][-flight.ring :]]
    config = {
        name: {"name": name, "desc": desc, "ranks": str(list(members))}
        for name, (desc, members) in flight.groups.items()
        if rank in members and flight.backend != "gloo"
    }
    if flight.backend == "gloo":
        config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    library = "comm_lib_version" if number >= (2, 9) else "nccl_version"
    return {"version": flight.version, "pg_config": config, library: "2.21.5", "pg_status": {}, "entries": entries}


def _as_written(
    flight: Flight, rank: int, entry: _Entry, version: tuple[int, ...], frames: dict[int, list[dict[str, Any]]]
) -> dict[str, Any]:
    op = entry.op
    desc, members = flight.groups[op.group]
    name = op.name
    if op.peer is not None and name in ("send", "recv"):
        me = members.index(rank)
        name = f"send {me}->{op.peer}" if op.name == "send" else f"recv {me}<-{op.peer}"
    outputs = op.sizes if op.outputs is None else op.outputs
    gloo = flight.backend == "gloo"
    done = entry.state == "completed"
    discovered = None if gloo or not done else entry.created + STEP_NS
    written = {
        "frames": frames.setdefault(op.line, _frames(op)),
        "record_id": entry.record,
        "pg_id": list(flight.groups).index(op.group),
        "process_group": (op.group, desc),
        "thread_name": "python",
        "thread_id": "140",
        "collective_seq_id": entry.seq,
        "p2p_seq_id": entry.p2p_seq,
        "op_id": entry.op_id,
        "profiling_name": f"{flight.backend}:{name}",
        "time_created_ns": entry.created,
        "input_sizes": [list(sizes) for sizes in op.sizes],
        "input_dtypes": [op.dtype] * len(op.sizes),
        "output_sizes": [list(sizes) for sizes in outputs],
        "output_dtypes": [op.dtype] * len(outputs),
        "state": "scheduled" if gloo else entry.state,
        "time_discovered_started_ns": discovered,
        "time_discovered_completed_ns": discovered,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": op.peer is not None,
    }
    return {key: value for key, value in written.items() if version >= _SINCE.get(key, (2, 0))}


def _frames(op: Op) -> list[dict[str, Any]]:
    torchs = "/opt/venv/lib/python3.11/site-packages/torch/distributed"
    return [
        {"name": op.name, "filename": f"{torchs}/distributed_c10d.py", "line": 3000},
        {"name": "wrapper", "filename": f"{torchs}/c10d_logger.py", "line": 83},
        {"name": "step", "filename": "/job/train.py", "line": op.line},
        {"name": "<module>", "filename": "/job/train.py", "line": 99},
    ]


# ------------------------------------------------------------------------------------------------- on disk


def write(flight: Flight, directory: Path, *, as_json: bool = False, prefix: str = "nccl_trace_rank_") -> Path:
    """Write the dumps of all ranks that have one to `directory`."""
    directory.mkdir(exist_ok=True)
    for rank in flight.programs:
        if rank not in flight.gone:
            dump = flight.dump(rank)
            raw = json.dumps(dump, separators=(",", ":")).encode() if as_json else torch_pickle(dump)
            (directory / f"{prefix}{rank}{'.json' if as_json else ''}").write_bytes(raw)
    return directory


def as_torchcomms(flight: Flight, rank: int, *, backend: str = "ncclx") -> dict[str, Any]:
    """The dump of `rank` as TorchComms's recorder writes it (its FlightRecorder.cpp of 2026).

    The keys are those of torch, and what they mean is not all: groups are described by their backend, all calls of all
    groups and all messages have one number from 0 on, and of messages nobody is told, nor that they are some. A backend
    without events, as ``gloo`` is there, has states that never advance.
    """
    dump = flight.dump(rank)
    for place, entry in enumerate(dump["entries"]):
        name, op = entry["process_group"][0], entry["profiling_name"].partition(":")[2]
        entry |= {"process_group": (_named(name), backend), "profiling_name": f"{backend}:{op.partition(' ')[0]}"}
        entry |= {"collective_seq_id": entry["record_id"], "p2p_seq_id": 0, "op_id": place, "is_p2p": False}
        if backend == "gloo":
            entry["state"] = "scheduled"
    dump["pg_config"] = {
        _named(name): {"name": _named(name), "desc": backend, "ranks": told["ranks"].replace(" ", "")}
        for name, told in dump["pg_config"].items()
    }
    return dump


def _named(group: str) -> str:
    return "main_comm" if group == "0" else f"comm_{group}"


def torch_pickle(data: Any) -> bytes:
    """`data` as torch's C++ pickler writes it: texts once, and dicts that are used again once."""
    return _Pickler().written(data)


class _Pickler:
    def __init__(self) -> None:
        self._out = bytearray(b"\x80\x02")
        self._memo: dict[object, int] = {}

    def written(self, data: Any) -> bytes:
        self._put(data)
        return bytes(self._out + b".")

    def _keep(self, key: object) -> None:
        number = self._memo[key] = len(self._memo)
        self._out += b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)

    def _known(self, key: object) -> bool:
        number = self._memo.get(key)
        if number is None:
            return False
        self._out += b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)
        return True

    def _put(self, data: Any) -> None:
        out = self._out
        if data is None or isinstance(data, bool):
            out += {None: b"N", True: b"\x88", False: b"\x89"}[data]
        elif isinstance(data, int):
            self._integer(data)
        elif isinstance(data, float):
            out += b"G" + struct.pack(">d", data)
        elif isinstance(data, str):
            if not self._known(data):
                raw = data.encode("utf-8", "surrogatepass")
                out += b"X" + struct.pack("<I", len(raw)) + raw
                self._keep(data)
        elif isinstance(data, tuple):
            for each in data:
                self._put(each)
            out += {1: b"\x85", 2: b"\x86", 3: b"\x87"}[len(data)]
        elif isinstance(data, list):
            out += b"]("
            for each in data:
                self._put(each)
            out += b"e"
        else:
            self._dict(data)

    def _dict(self, data: dict[str, Any]) -> None:
        frame = data.keys() == {"name", "filename", "line"}
        if frame and self._known(("frame", *data.values())):
            return
        self._out += b"}"
        if frame:
            self._keep(("frame", *data.values()))
        self._out += b"("
        for key, value in data.items():
            self._put(key)
            self._put(value)
        self._out += b"u"

    def _integer(self, value: int) -> None:
        if 0 <= value < 256:
            self._out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self._out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self._out += b"J" + struct.pack("<i", value)
        else:
            self._out += b"\x8a\x08" + struct.pack("<q", value)


def told(columns: Columns) -> tuple[Any, ...]:
    """All that columns say, to be compared."""
    arrays = {name: (array.dtype, array.tolist()) for name, array in columns.arrays.items()}
    return columns.version, dict(columns.groups), columns.wrapped, arrays
