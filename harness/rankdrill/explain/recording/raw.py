"""Records as an array: of rings as large as real jobs keep, only a few are worth decoding one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy
from numpy.lib.recfunctions import repack_fields

from rankdrill.ledger import LedgerView, State
from rankdrill.ledger import format as f
from rankdrill.ledger.slots import NOT_WHOLE
from rankdrill.step import Kind

__all__ = ["Calls", "begins_in", "calls_of", "talks"]

Calls: TypeAlias = "numpy.ndarray[Any, numpy.dtype[Any]]"
"""Of collectives that have a number, in the order of these: what `_KEPT` names, an array each."""
_RECORD = numpy.dtype(
    {
        "names": ["index", "begin", "end", "sequence", "state", "kind", "op", "target", "patience", "digest", "peer"],
        "formats": ["<u8", "<u8", "<u8", "<i8", "u1", "u1", "S32", "S76", "<u4", "<u8", "<i4"],
        "offsets": [0, 8, 16, 32, f.STATE_OFFSET, f.KIND_OFFSET, 48, 80, f.PATIENCE_OFFSET, 260, f.MESSAGE_OFFSET],
        "itemsize": f.RECORD_BYTES,
    }
)
_KEPT = ["index", "sequence", "op", "digest", "begin", "end"]
_COLLECTIVE = f.KINDS.index(Kind.COLLECTIVE)


def calls_of(view: LedgerView) -> Iterator[tuple[str, Calls]]:
    """The numbered collectives of each group. Of one that was refused the next one has the number."""
    records = _array(view)
    numbered = records[(records["kind"] == _COLLECTIVE) & (records["sequence"] >= 0)]
    refused = (numbered["state"] == State.RAISED) & (numbered["patience"] == 0)
    issued = numbered[~refused]
    for target in numpy.unique(issued["target"]):
        of_group = issued[issued["target"] == target]
        # The newest of each number.
        _, last = numpy.unique(of_group["sequence"][::-1], return_index=True)
        yield f.text(bytes(target)), repack_fields(of_group[_KEPT])[::-1][last]


def begins_in(view: LedgerView) -> list[int]:
    """When each of its records began, whole or not, in ns of its own machine."""
    return [int(begin) for begin in numpy.frombuffer(view.raw.joined, _RECORD)["begin"]]


def talks(view: LedgerView) -> bool:
    """Whether there is any message in it."""
    return bool((_array(view)["peer"] != f.NO_MESSAGE).any())


def _array(view: LedgerView) -> Any:
    """The whole records of `view`."""
    return numpy.frombuffer(view.raw.joined, _RECORD)[numpy.asarray(view.marks) != NOT_WHOLE]
