"""From an entry of a flight recorder's dump to a call that can be made again, and what had to be assumed for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rankdrill.explain.flight.agreed import family
from rankdrill.explain.flight.columns import UNTOLD
from rankdrill.explain.flight.columns import Call as Entry
from rankdrill.explain.flight.job import Job
from rankdrill.replay.dump_rows import Row
from rankdrill.replay.score import Call, Tensor
from rankdrill.step import NOBODY, RECV, SEND

__all__ = ["Calls"]

DTYPES = {
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "UInt16": "uint16",
    "UInt32": "uint32", "UInt64": "uint64", "Half": "float16", "BFloat16": "bfloat16", "Float": "float32",
    "Double": "float64", "Bool": "bool", "ComplexHalf": "complex32", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
_OPS = {"allreduce_coalesced": "all_reduce_coalesced"}
_REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter", "all_reduce_coalesced"})
_ROOTED = frozenset({"broadcast", "reduce"})
_AT_ROOT = frozenset({"gather", "scatter"})  # of which a list is recorded at the root alone
_OUTPUT = frozenset({"reduce_scatter", "scatter"})  # of which a tensor that every rank has is an output
_UNKNOWN_DTYPE = "uint8"
MOST_DIMENSIONS, MOST_LENGTH = 64, 1 << 40


@dataclass
class Calls:
    """The entries of `job` as calls; `names` are what its groups are called in the score."""

    job: Job
    names: list[str]
    _assumed: set[str] = field(default_factory=set)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What dumps do not have, and was assumed of the calls made so far, a sentence each."""
        return tuple(sorted(self._assumed))

    def of(self, rank: int, row: Row) -> Call:
        """What `rank` did there."""
        entry, group = self.job.call_at(row.number), int(self.job.rows["group"][row.number])
        site = self.job.site_at(row.number)
        where = f"{site.file}:{site.line}" if site is not None else ""
        via = site.via if site is not None else ""
        name = self.names[group]
        if entry.source >= 0:
            op, peer = self._peer(rank, entry, group)
            return Call(op, name, self._all(entry), peer=peer, via=via if via.endswith(op) else "", site=where)
        op = self._op(entry)
        tensors = self._tensors(op, entry, group)
        root = self._root(op, rank, row, group)
        reduces = "sum" if op in _REDUCING else ""
        if reduces:
            self._assumed.add("dumps have no reduce operators: all are taken for sums")
        number = int(self.job.rows["seq"][row.number])
        return Call(op, name, tensors, reduces, root, via=via, site=where, number=number)

    def _peer(self, rank: int, entry: Entry, group: int) -> tuple[str, int]:
        members = self.job.groups[group].members
        ends = [members[at] if at < len(members) else NOBODY for at in (entry.source, entry.target)]
        return (SEND, ends[1]) if rank == ends[0] else (RECV, ends[0])

    def _op(self, entry: Entry) -> str:
        """By the name that a score has for it."""
        if entry.op in _OPS:
            return _OPS[entry.op]
        if entry.op in UNTOLD:
            self._assumed.add("no dump tells with whom TorchComms's messages are exchanged: they are not played")
            return f"{entry.op}_with_somebody"
        op = family(entry)
        if op == "all_gather" and len(entry.outputs) <= 1:
            return "all_gather_into_tensor"
        if op == "reduce_scatter" and len(entry.inputs) <= 1:
            return "reduce_scatter_tensor"
        if op == "all_to_all" and len(entry.inputs) <= 1:
            return "all_to_all_single"
        if op == "all_reduce" and len(entry.inputs) > 1:
            return "all_reduce_coalesced"
        return op if op.isidentifier() else "unknown"

    def _tensors(self, op: str, entry: Entry, group: int) -> tuple[Tensor, ...]:
        if op == "barrier":
            return ()
        if op == "all_to_all_single" or op == "all_to_all":
            return self._exchanged(op, entry, len(self.job.groups[group].members))
        if op in _OUTPUT:
            return self._made(entry.outputs, entry.output_dtypes)[:1]
        made = self._all(entry)
        return made if op.endswith("coalesced") else made[:1]

    def _all(self, entry: Entry) -> tuple[Tensor, ...]:
        return self._made(entry.inputs, entry.input_dtypes) or self._made(entry.outputs, entry.output_dtypes)

    def _exchanged(self, op: str, entry: Entry, members: int) -> tuple[Tensor, ...]:
        """Parts of one element each where nobody knows how much went where."""
        made = self._made(entry.inputs, entry.input_dtypes)
        even = len(set(entry.inputs) | set(entry.outputs)) == 1
        if op == "all_to_all" and even and len(made) == members:
            return made
        if op != "all_to_all" and even and made[0].shape[:1] and made[0].shape[0] % members == 0:
            return made
        self._assumed.add("dumps do not tell how an all_to_all was split: uneven ones are played with one element each")
        dtype = made[0].dtype if made else "float32"
        return (Tensor(dtype, (members if op == "all_to_all_single" else 1,)),)

    def _made(self, sizes: tuple[tuple[int, ...], ...], dtypes: str) -> tuple[Tensor, ...]:
        names = dtypes.split(",") if dtypes else []
        return tuple(Tensor(_dtype(name), _lengths(shape)) for name, shape in zip(names, sizes, strict=False))

    def _root(self, op: str, rank: int, row: Row, group: int) -> int:
        members = self.job.groups[group].members
        if not members or op not in _ROOTED | _AT_ROOT:
            return NOBODY
        if op in _ROOTED:
            self._assumed.add("dumps have no roots: taken is the first rank of each group")
            return members[0]
        if not row.supposed and self._is_root(op, self.job.call_at(row.number)):
            return rank
        return self._roots.get((group, int(self.job.rows["seq"][row.number])), members[0])

    def _is_root(self, op: str, entry: Entry) -> bool:
        return bool(entry.outputs if op == "gather" else entry.inputs)

    @cached_property
    def _roots(self) -> Mapping[tuple[int, int], int]:
        """Of gathers and scatters, by group and number, who brought what only the root brings."""
        rows = self.job.rows
        at_roots = [family(call) in _AT_ROOT and self._is_root(family(call), call) for call in self.job.calls]
        own = np.flatnonzero(np.array(at_roots or [False], np.bool_)[rows["call"]])
        columns = (rows[name][own].tolist() for name in ("group", "seq", "rank"))
        return {(group, seq): rank for group, seq, rank in zip(*columns, strict=True)}


def _lengths(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(max(0, length), MOST_LENGTH) for length in shape[:MOST_DIMENSIONS])


def _dtype(name: str) -> str:
    if name in DTYPES:
        return DTYPES[name]
    return name.lower() if name.startswith("Float8") and name.isidentifier() else _UNKNOWN_DTYPE
