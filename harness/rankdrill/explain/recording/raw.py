"""Records as an array: of rings as large as real jobs keep, only a few are worth decoding one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy

from rankdrill.ledger import LedgerView, State
from rankdrill.ledger import format as f
from rankdrill.step import Kind

__all__ = ["Calls", "calls_of", "torn_in"]

Calls: TypeAlias = "numpy.ndarray[Any, numpy.dtype[Any]]"
"""Of collectives that have a number, in the order of these: ``sequence``, ``op``, ``digest``, ``begin``, ``end``."""
_RECORD = numpy.dtype(
    {
        "names": ["index", "begin", "end", "sequence", "state", "kind", "op", "target", "patience", "digest", "commit"],
        "formats": ["<u8", "<u8", "<u8", "<i8", "u1", "u1", "S32", "S76", "<u4", "<u8", "<u4"],
        "offsets": [0, 8, 16, 32, f.STATE_OFFSET, f.KIND_OFFSET, 48, 80, f.PATIENCE_OFFSET, 260, 284],
        "itemsize": f.RECORD_BYTES,
    }
)
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
        yield f.text(bytes(target)), of_group[::-1][last]


def torn_in(view: LedgerView) -> int:
    """How many of its records are not whole."""
    return len(view.raw) - len(_array(view))


def _array(view: LedgerView) -> Any:
    """The whole records of `view`."""
    # What was cut off is not to be taken for the zeros that a commit may end in.
    raw = b"".join(each.ljust(f.RECORD_BYTES, b"\xff") for each in view.raw)
    records = numpy.frombuffer(raw, _RECORD)
    index = numpy.arange(view.first, view.first + len(records), dtype="u8")
    commit = (index + 1) & 0xFFFFFFFF
    whole = (
        (records["index"] == index)
        & (records["commit"] == numpy.where(commit == 0, 1, commit))
        & numpy.isin(records["state"], list(State))
        & (records["kind"] < len(f.KINDS))
    )
    return records[whole]
