"""The ledger's binary format, version 6 (little-endian; also in docs/ledger.md).

One file per rank: a header of `HEADER_BYTES`, a ring of `capacity` records of `RECORD_BYTES`, then the tables of call
sites and of groups. Record *i* lies in slot ``i % capacity``; `total` in the header counts all records ever begun, so
a reader knows how many were overwritten. A record's last field, `commit`, is ``(i + 1) mod 2**32`` and is stored last,
so a record whose writer was killed half way does not carry the right commit and is reported as torn, never believed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from rankdrill.step import Kind, Step

__all__ = [
    "BEATS_OFFSET",
    "CAPACITY",
    "CLOCK_OFFSET",
    "FINGERPRINT_BYTES",
    "FIRED_OFFSET",
    "GROUPS",
    "GROUPS_OFFSET",
    "GROUP_BYTES",
    "HEADER",
    "HEADER_BYTES",
    "HEART_OFFSET",
    "KINDS",
    "KIND_AT",
    "MAGIC",
    "MAX_FAULTS",
    "MOST_GROUPS",
    "MOST_RECORDS",
    "MOST_SITES",
    "OP_BYTES",
    "PLACE",
    "PLACES_OFFSET",
    "RECORD",
    "RECORD_BYTES",
    "RECORD_HEAD",
    "RECORD_KIND",
    "RECORD_TAIL",
    "SITES",
    "SITE_BYTES",
    "TAIL_AT",
    "TOTAL_OFFSET",
    "UNKNOWN_RANK",
    "VERSION",
    "Record",
    "State",
    "commit_of",
    "fit",
    "text",
]

MAGIC = b"RDLEDGER"
VERSION = 6
CAPACITY = 4096  # records kept per rank: 1 MiB, preallocated so that a full disk cannot SIGBUS a rank
MOST_RECORDS = 1 << 20  # that a ring is believed to have room for: what says so may be damaged
SITES = 1024  # call sites kept per rank; calls from further ones have none
MOST_SITES = 1 << 16  # that a table is believed to have room for
SITE_BYTES = 256
GROUPS = 256  # groups kept per rank, the newest
MOST_GROUPS = 1 << 16  # that a table is believed to have room for
GROUP_BYTES = 256

# magic, version, record bytes, capacity, rank, world size, pid, start (ns since the epoch), room for call sites, for
# groups
HEADER = struct.Struct("<8sIIIIIIQII")
HEADER_BYTES = 4096
RANK = struct.Struct("<II")  # rank and world size, which a recorded job knows only once it has a group
RANK_OFFSET = 20
UNKNOWN_RANK = 0xFFFFFFFF
HEART_OFFSET = 48  # uint64: when the writer was last known to live, in monotonic ns; 0 where nobody says so
BEATS_OFFSET = 56  # uint32: how often it has said so; of two places for where it was, the newest is (this - 1) % 2
PLACES_OFFSET = 1152
PLACE = struct.Struct("<I188s64s")  # line, file, function
TOTAL_OFFSET = 64  # uint64: records begun so far
GROUPS_OFFSET = 72  # uint64: entries written so far of the table of groups
CLOCK_OFFSET = 80  # uint64: what the machine's monotonic clock was at the start, in ns
FIRED_OFFSET = 128  # MAX_FAULTS x uint32: how often each fault of the plan has struck in this run
MAX_FAULTS = 256

# index, begin, end (monotonic ns), nbytes, sequence, thread id, fault + 1, state, kind, op, target, fingerprint,
# error, patience (ms), call site, digest of the contract, of a message the peer, the tag and its number, commit
RECORD = struct.Struct("<QQQQqIHBB32s76s64s32sIIQiIqI")
RECORD_BYTES = RECORD.size
# The same in three parts: what is of this one call, what all calls of its kind from its line have in common, the rest.
RECORD_HEAD = struct.Struct("<QQQQqIH")
RECORD_KIND = struct.Struct("<BB32s76s64s32sIIQ")
RECORD_TAIL = struct.Struct("<iIqI")
KIND_AT = RECORD_HEAD.size
TAIL_AT = KIND_AT + RECORD_KIND.size
assert TAIL_AT + RECORD_TAIL.size == RECORD_BYTES
END_OFFSET = 16
STATE_OFFSET = 46
KIND_OFFSET = 47
FAULT_OFFSET = 44
OP_BYTES = 32
ERROR_OFFSET = 220
ERROR_BYTES = 32
FINGERPRINT_BYTES = 64
PATIENCE_OFFSET = 252
MESSAGE_OFFSET = 268
MESSAGE = struct.Struct("<iIq")
NO_MESSAGE = -1  # the peer of every other step

KINDS = tuple(Kind)
ELLIPSIS = "…".encode()


class State(IntEnum):
    """How far a step got."""

    BEGUN = 1  # inside the call
    ISSUED = 2  # an asynchronous collective was handed to the backend; nobody waits for it yet
    WAITING = 3  # somebody waits for it
    ENDED = 4
    RAISED = 5

    @property
    def open(self) -> bool:
        """Whether the rank is inside this step."""
        return self in (State.BEGUN, State.WAITING)


@dataclass(frozen=True, slots=True)
class Record:
    """One step as a rank wrote it down. Times are ns of the machine's monotonic clock; `end_ns` is 0 while open.

    `fault` is the index of the plan's fault that struck here, or None; `error` the type name if it raised.
    `patience_ms` is how long the rank waits here before it gives up by itself; 0 where that is not known.
    """

    index: int
    step: Step
    state: State
    begin_ns: int
    end_ns: int
    thread: int
    fault: int | None
    error: str
    patience_ms: int = 0

    def __str__(self) -> str:
        how = {State.RAISED: f"raised {self.error}", State.ENDED: "ended"}.get(self.state, self.state.name.lower())
        struck = f", struck by fault {self.fault}" if self.fault is not None else ""
        return f"{self.step} [{how}{struck}]"


def commit_of(index: int) -> int:
    """The commit mark of record `index`; never 0, which is what an unwritten slot holds."""
    return (index + 1) & 0xFFFFFFFF or 1


def fit(text: str, size: int, *, keep: str = "head") -> bytes:
    """`text` in at most `size` UTF-8 bytes, cut at the far end from what is kept, with an ellipsis.

    The tail of a path says most, the head of anything else.
    """
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= size:
        return raw
    room = size - len(ELLIPSIS)
    return raw[:room] + ELLIPSIS if keep == "head" else ELLIPSIS + raw[-room:]


def text(raw: bytes) -> str:
    """What stands in a field of a record."""
    # Zeros within it stand in no text that a rank wrote, and no call of the system takes them.
    return raw.rstrip(b"\0").decode("utf-8", "replace").replace("\0", "\ufffd")
