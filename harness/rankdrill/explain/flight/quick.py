"""A pickle as torch writes it, to columns: in C, without building what is in it.

Nearly all dumps are such. It takes a tenth of the time of `load` and `columns_of`, which read all others, say what is
wrong with them, and are its twins: of a dump that is read here they make the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankdrill.explain.flight.columns import COLUMNS, Columns, Tables, numbered, of_arrays
from rankdrill.native import hot

__all__ = ["columns_of_pickle"]

_DIGESTS = 3  # the columns that tell groups, calls and sites apart; the others are as they are


def columns_of_pickle(raw: bytes, tables: Tables) -> Columns | None:
    """The dump in `raw`, which speaks of `tables` then; None where this is not for it."""
    dump = None if hot is None else hot.read_dump(raw)
    if dump is None:
        return None
    read: tuple[bytes, ...] | None = dump.columns()
    if not read or not read[0]:
        return None
    groups, calls, sites = (np.frombuffer(each, np.uint64) for each in read[:_DIGESTS])
    kinds: dict[str, Any] = dict(list(COLUMNS.items())[_DIGESTS:])
    told = zip(kinds.items(), read[_DIGESTS:], strict=True)
    plain = {
        name: np.frombuffer(each, kind).copy() for (name, kind), each in told
    }  # of coalesced calls some are changed
    try:
        arrays = numbered((groups, calls, sites), dump.entry, plain, tables)
        return of_arrays(arrays, dump.get("version"), dump.get("pg_config"), tables)
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError):
        return None
