"""The step: one crossing of a boundary by one rank. Everything in rankdrill hangs on it."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

from rankdrill.site import Site

__all__ = [
    "ADDS_NOTHING",
    "ANNOUNCED",
    "ANYBODY",
    "ANY_TAG",
    "BATCH",
    "BY_TWOS",
    "DDP_BUCKET",
    "DEFAULT_GROUP",
    "FILE_LOCKS",
    "HANDED_OVER",
    "INIT_GROUP",
    "JOINS_STORE",
    "LEAVES_GROUP",
    "LOCAL_GROUP",
    "MAKES_GROUP",
    "MESSAGES",
    "MPI",
    "MPI_ABORT",
    "MPI_CALLS",
    "NEVER_WAITED",
    "NEW_GROUP",
    "NOBODY",
    "NO_SEQUENCE",
    "OUTSIDE",
    "OWN_STORE",
    "PRIVATE_STORE",
    "RECV",
    "REPLACING",
    "SEND",
    "STORE_MEETS",
    "STORE_WAITS",
    "STRIDES",
    "Contract",
    "Kind",
    "Meeting",
    "Message",
    "Named",
    "Site",
    "Step",
    "StoreKey",
]

NO_SEQUENCE = -1
NOBODY = -1
"""The root of a collective that has none."""
DEFAULT_GROUP = "default"
"""What steps call the default process group; torch's own name for it is a number."""
ANNOUNCED = " were announced"
"""What ends, in what a reader is told of sizes, those that ranks were told before, where these were others."""
STRIDES = " strides "
"""What stands, in what a reader is told of tensors that lie in another order than their indices', before how."""
NEW_GROUP = "new_group"
"""The op of a step that makes a group."""
HANDED_OVER = " (hands over)"
"""Ends, on a stack, the name of a function that has handed to another thread what is called there, and may have gone
on; and is the `Site.via` of such a caller.
"""
INIT_GROUP = "init_process_group"
"""The op of a step that makes the default group itself."""
LOCAL_GROUP = "new_local_group"
"""The op of a step that makes a group as its members alone do, with ``use_local_synchronization``."""
MAKES_GROUP = frozenset({NEW_GROUP, INIT_GROUP, LOCAL_GROUP})
"""The ops in which each member waits for the others to come."""
LEAVES_GROUP = "destroy_process_group"
"""The op of a step in which a rank leaves a group, alone: nobody meets another there."""
DDP_BUCKET = "DDP bucket "
"""Begins the `Site.via` of what DistributedDataParallel's reducer calls; the bucket's number follows."""
NEVER_WAITED = "NeverWaited"
"""The error of a step whose message was given up: gloo does not deliver what nobody holds the handle of."""
SEND, RECV = "send", "recv"
"""The ops of the two halves of a message."""
BATCH = "batch_isend_irecv"
"""What issues several of them at once."""
MESSAGES = frozenset({SEND, RECV})
ANYBODY = -2
_FROM_ANYBODY = "peer=any"
_PEER = re.compile(r"\bpeer=\d+")
"""The peer of a receive that takes from any member of its group."""
ANY_TAG = 0xFFFFFFFF
"""The tag of messages that are counted together whatever their tags are, as MPI's are: a receive may take any."""
MPI = "mpi_"
"""What the ops of MPI's collectives begin with, and the fingerprints of its messages."""
MPI_ABORT = "MPI.Comm.Abort"
"""The call by which a rank of MPI ends them all."""
MPI_CALLS = (
    *("Barrier", "barrier", "Ibarrier"),
    *("bcast", "Bcast", "Ibcast"),
    *("gather", "Gather", "Gatherv", "Igather", "Igatherv"),
    *("scatter", "Scatter", "Scatterv", "Iscatter", "Iscatterv"),
    *("allgather", "Allgather", "Allgatherv", "Iallgather", "Iallgatherv"),
    *("alltoall", "Alltoall", "Alltoallv", "Alltoallw", "Ialltoall", "Ialltoallv", "Ialltoallw"),
    *("reduce", "Reduce", "Ireduce", "allreduce", "Allreduce", "Iallreduce"),
    *("Reduce_scatter", "Reduce_scatter_block", "Ireduce_scatter", "Ireduce_scatter_block"),
    *("scan", "Scan", "Iscan", "exscan", "Exscan", "Iexscan"),
    *("Clone", "Create", "Dup", "Dup_with_info", "Split", "Split_type"),
)
"""The collectives of mpi4py's communicators."""
OUTSIDE = -3
"""The peer of a message to or from a rank that the group does not have."""
BY_TWOS = frozenset({"all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"})
"""The ops in which what one rank sends has to fit what the other receives, and need not be the same for all."""
STORE_WAITS = frozenset({"get", "multi_get", "queue_pop", "wait"})
"""The ops of a store that wait until their key is there."""
ADDS_NOTHING = "+0"
"""What a store's `add` writes that only asks for a counter."""
JOINS_STORE = "TCPStore"
"""The op of a step that makes a store of several processes: see `Meeting`."""
STORE_MEETS = frozenset({"barrier", JOINS_STORE})
"""The ops of a store in which ranks wait until as many have come as they were told."""
OWN_STORE = "FileStore"
"""The store of the world itself, which nobody outside of it uses; others have an address."""
_MEETING = re.compile(r"(all|server|client)(?: of (\d+) ranks)?, (.*)")
PRIVATE_STORE = "HashStore"
"""A store that no other process uses."""
FILE_LOCKS = frozenset({"flock", "lockf"})
"""The ops of a file that wait until its lock is free."""
REPLACING = frozenset({"rename", "replace"})
"""The ops that put one file in the place of another."""


class Kind(StrEnum):
    """What is crossed. The order is part of the ledger's format: append, never reorder."""

    COLLECTIVE = "collective"
    FILE = "file"
    SHM = "shm"
    OBJECT = "object"
    MEMORY = "memory"
    CLOCK = "clock"
    GROUP = "group"
    STORE = "store"


@dataclass(frozen=True)
class Contract:
    """What the ranks of one collective must agree on, whole: nothing is cut to fit a line.

    `dtypes` and `sizes` are those of all tensors in order; sizes are counts of elements, since that is all backends
    look at: a broadcast of ``[6]`` into ``[2, 3]`` is right. `sizes` is empty for a collective whose ranks may bring
    different ones. There, what rank *i* sends to *j* must be what *j* receives from *i*: `each` to and from
    everybody, else `sends` and `receives` by rank in the group. `orders` say in which order of their dimensions tensors
    lie in memory, where that matters and one lies in another order than its indices'; of tensors that have different
    shapes they cannot be compared. Where order must fit by twos only, `laid` has by rank in the group that of what is
    given to each, and of what is taken from each, None where nothing is; it is empty where all tensors lie in order.
    `shown` is what a reader is told of the tensors; it is not compared.
    """

    op: str
    reduce_op: str = ""
    root: int = NOBODY
    dtypes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    each: int | None = None
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    orders: tuple[tuple[int, ...], ...] = ()
    laid: tuple[tuple[tuple[int, ...] | None, ...], ...] = ()
    shown: str = field(default="", compare=False)

    @cached_property
    def digest(self) -> int:
        """64 bits over everything that must be equal on all ranks."""
        alike: tuple[object, ...] = (self.op, self.reduce_op, self.root, self.dtypes, self.sizes)
        if self.orders:
            alike = (*alike, self.orders)
        if self.laid and self.op not in BY_TWOS:  # where few are looked at, who looks is to see that there is something
            alike = (*alike, "laid")
        return int.from_bytes(blake2b(repr(alike).encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Message:
    """What matches a send with its receive: the global rank of the other side, the tag, and which one it is.

    `number` counts, from 0, what goes from one rank to one other in one group with one tag; it is `NO_SEQUENCE` while
    that is not known, as of a receive that takes from `ANYBODY`. `header` are the integers of the message before, to or
    from the same rank, if that was a few: only its own rank knows them.
    """

    peer: int
    tag: int = 0
    number: int = NO_SEQUENCE
    header: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class StoreKey:
    """A key of a store: how it is `shown`, which `store` it lies in, and a digest that tells it from all others."""

    shown: str
    store: str
    digest: int


@dataclass(frozen=True, slots=True)
class Named:
    """What a rank calls a group that its members alone make: `mark` is its name's, `held` how many groups it holds.

    torch makes the name of that number. Together they are the digest of the step.
    """

    mark: int
    held: int

    @staticmethod
    def mark_of(name: str) -> int:
        """By which a name is known."""
        return zlib.crc32(name.encode())

    @classmethod
    def of(cls, digest: int) -> Named:
        """As a step tells it."""
        return cls(digest >> 32, digest & 0xFFFFFFFF)

    @property
    def digest(self) -> int:
        """As a step tells it."""
        return self.mark << 32 | self.held


@dataclass(frozen=True, slots=True)
class Meeting:
    """For how many ranks a rank waits at one place of a `store`, itself among them: the fingerprint of such a step.

    In a store's ``barrier`` each waits for all. A ``TCPStore`` has one server, which waits for all that are to connect,
    if it was told so; these wait for the server alone. `wanted` is 0 for one that does not wait, or is not waited for.
    """

    role: str
    wanted: int
    store: str

    ALL: ClassVar = "all"
    SERVER: ClassVar = "server"
    CLIENT: ClassVar = "client"

    @classmethod
    def of(cls, step: Step) -> Meeting:
        """As a step tells it."""
        told = _MEETING.match(step.fingerprint)
        return cls(told[1], int(told[2] or 0), told[3]) if told else cls(cls.ALL, 0, step.fingerprint)

    def __str__(self) -> str:
        return f"{self.role}{f' of {self.wanted} ranks' if self.wanted else ''}, {self.store}"

    @property
    def waits_for_all(self) -> bool:
        """Whether it waits for as many as are wanted."""
        return self.wanted > 0 and self.role != self.CLIENT

    @property
    def serves(self) -> bool:
        """Whether the others wait for it."""
        return self.role == self.SERVER


@dataclass(frozen=True)
class Step:
    """What a rank is about to do, described so that ranks, plans and people can compare it.

    `op` is the field's own name for it (``all_reduce``, ``rename``, ``dumps``). `target` is what it is done
    to: a process group's name, an absolute path, a segment's name, a type. `fingerprint` holds what all
    ranks of a collective must agree on (reduce op, root, dtype and shape), or a detail worth reading.
    `sequence` numbers a rank's collectives within one group, from 0; `NO_SEQUENCE` for every other step, also for
    sends and receives, whose `message` says which one it is.
    Of a collective `site` is where it was called, `digest` that of its `contract`, which only its own rank has. Of a
    store's call `digest` is that of its key, and of the store that it lies in; of a `LOCAL_GROUP` see `Named`. Of a
    file that is opened, or put in the place of another, `digest` is that of its path, and of what is written that of
    the content, if it is short.
    """

    kind: Kind
    op: str
    target: str = ""
    fingerprint: str = ""
    nbytes: int = 0
    sequence: int = NO_SEQUENCE
    site: Site | None = field(default=None, compare=False)
    digest: int = field(default=0, compare=False)
    contract: Contract | None = field(default=None, compare=False, repr=False)
    message: Message | None = None

    def like(self, **changed: Any) -> Step:
        """This step with some fields changed: as `dataclasses.replace`, at a fraction of what that costs each call."""
        made = object.__new__(Step)
        made.__dict__.update(self.__dict__, **changed)
        return made

    @property
    def where(self) -> str:
        """``, at train.py:41 in step``, or nothing where that is not known."""
        return f", at {self.site}" if self.site is not None else ""

    @property
    def is_from_anybody(self) -> bool:
        """Whether it is a receive that names no sender."""
        return self.fingerprint.partition(" ")[2].startswith(_FROM_ANYBODY)

    @property
    def of_mpi(self) -> bool:
        """Whether it is MPI that does it."""
        return (self.fingerprint if self.message is not None else self.op).startswith(MPI)

    @property
    def device(self) -> str:
        """``cuda``: where its tensors lie, on a group with backends for several devices; nothing of main memory."""
        name, colon, _ = self.fingerprint.partition(":")
        return name if colon and name.isalnum() and self.kind is Kind.COLLECTIVE else ""

    @property
    def call(self) -> str:
        """``all_reduce #3 on 'default'``: a collective as findings name it."""
        return f"{self.op} #{self.sequence} on {self.target!r}"

    @property
    def name(self) -> str:
        """``collective.all_reduce``: how plans name this kind of step."""
        return f"{self.kind}.{self.op}"

    def __str__(self) -> str:
        parts = [self.name]
        if self.sequence != NO_SEQUENCE:
            parts.append(f"#{self.sequence}")
        if self.target:
            parts.append(f"on {self.target!r}")
        if self.fingerprint:
            parts.append(f"({self._told})")
        return " ".join(parts)

    @property
    def _told(self) -> str:
        """The fingerprint; of a message in a group its peer by the rank in the world, as ranks are told elsewhere."""
        if self.message is None or self.message.peer < 0 or self.target == DEFAULT_GROUP:
            return self.fingerprint
        return _PEER.sub(f"peer=rank {self.message.peer}", self.fingerprint)
