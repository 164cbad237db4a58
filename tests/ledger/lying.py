"""A ledger that is damaged where it says how long it is."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from rankdrill.ledger import LedgerWriter
from rankdrill.ledger.format import HEADER_BYTES, RECORD_BYTES, TOTAL_OFFSET

__all__ = ["SLOTS", "lying"]

SLOTS = 4
CAPACITY_OFFSET = 16


def lying(path: Path, capacity: int) -> Path:
    """A file of `SLOTS` slots, which says that it has `capacity`, and that all were written to many times."""
    LedgerWriter(path, rank=0, world_size=1, capacity=SLOTS).close()
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, CAPACITY_OFFSET, capacity)
    struct.pack_into("<Q", raw, TOTAL_OFFSET, 1 << 63)
    path.write_bytes(raw)
    os.truncate(path, HEADER_BYTES + SLOTS * RECORD_BYTES)
    return path
