"""Writes a rank's steps into a memory-mapped file: no system call per record, complete after SIGKILL."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rankdrill.ledger import format as f
from rankdrill.ledger.groups import GroupTable
from rankdrill.ledger.mapped import mapped
from rankdrill.ledger.sites import SiteTable
from rankdrill.ledger.stencil import Stencil, stencil
from rankdrill.native import hot
from rankdrill.step import NO_SEQUENCE, Message, Step

__all__ = ["LedgerWriter", "milliseconds"]

_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_U16 = struct.Struct("<H")
_KIND_CODES = {kind: code for code, kind in enumerate(f.KINDS)}
_OVER = int(f.State.ENDED)  # from here on a step is over, one way or another
_NONE = f.NO_MESSAGE, 0, NO_SEQUENCE
_MAP_FIXED = 0x10
_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
MOST_KNOWN = 1024  # kinds of calls whose bytes are remembered


class _Thread(threading.local):
    """The number that the kernel has for this thread: asked for once, not for every record."""

    def __init__(self) -> None:
        self.id = threading.get_native_id() & 0xFFFFFFFF


class LedgerWriter:
    """The ledger of one rank, open for writing.

    Safe to use from several threads: a record's slot belongs to the thread that began it.
    """

    def __init__(
        self, path: str | Path, *, rank: int, world_size: int, capacity: int = f.CAPACITY, sites: int = f.SITES
    ) -> None:
        assert 1 <= capacity <= f.MOST_RECORDS, capacity
        assert 0 <= sites <= f.MOST_SITES, sites
        ring_end = f.HEADER_BYTES + capacity * f.RECORD_BYTES
        sites_end = ring_end + sites * f.SITE_BYTES
        size = sites_end + f.GROUPS * f.GROUP_BYTES
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            self._map = mmap.mmap(fd, size)
        except OSError:
            os.unlink(path)  # a disk that has no room for it is not to be left full
            raise
        finally:
            os.close(fd)
        self.capacity = capacity
        self._mapped = mapped(self._map)
        self._next = itertools.count() if hot is None else hot.Numbering()
        self._thread = _Thread()
        self._kinds: dict[tuple[str, str, str, int, int], tuple[bytes, Step]] = {}
        # The garbage collector, which may run while it is held, may find a handle whose loss is to be written down.
        self._finish = threading.RLock()
        self._sites = SiteTable(self._map, ring_end, sites)
        self._groups = GroupTable(self._map, sites_end, f.GROUPS)
        _U64.pack_into(self._map, f.CLOCK_OFFSET, time.monotonic_ns())
        f.HEADER.pack_into(
            self._map,
            0,
            f.MAGIC,
            f.VERSION,
            f.RECORD_BYTES,
            capacity,
            rank,
            world_size,
            os.getpid(),
            time.time_ns(),
            sites,
            f.GROUPS,
        )

    def introduce(self, rank: int, world_size: int) -> None:
        """Say who writes, where that was not known from the start."""
        f.RANK.pack_into(self._map, f.RANK_OFFSET, rank, world_size)

    def beat(self, line: int = 0, file: str = "", function: str = "") -> None:
        """Stamp the time at which this process lived, its Python ran, and was at that line of the user's."""
        memory = self._map
        (beats,) = _U32.unpack_from(memory, f.BEATS_OFFSET)
        place = f.PLACES_OFFSET + beats % 2 * f.PLACE.size
        told = f.fit(file, 188, keep="tail"), f.fit(function, 64)
        f.PLACE.pack_into(memory, place, line & 0xFFFFFFFF, *told)
        _U32.pack_into(memory, f.BEATS_OFFSET, (beats + 1) & 0xFFFFFFFF)
        _U64.pack_into(memory, f.HEART_OFFSET, time.monotonic_ns())

    @property
    def total(self) -> int:
        """How many records have been begun."""
        return int(_U64.unpack_from(self._map, f.TOTAL_OFFSET)[0])

    def introduce_group(self, label: str, ranks: Sequence[int], mark: int = 0) -> None:
        """Write down which global ranks a group has, by rank in the group, before its first call; `Group` says more."""
        self._groups.add(label, ranks, mark, self.total)

    def begin(self, step: Step) -> int:
        """Write down that `step` begins; return its index."""
        index = next(self._next)
        memory, slot = self._map, self._slot(index)
        began = time.monotonic_ns()
        f.RECORD_HEAD.pack_into(memory, slot, index, began, 0, step.nbytes, step.sequence, self._thread.id, 0)
        memory[slot + f.KIND_AT : slot + f.TAIL_AT] = self._kind_of(step)
        message = _NONE if step.message is None else _matching(step.message)
        f.RECORD_TAIL.pack_into(memory, slot + f.TAIL_AT, *message, f.commit_of(index))
        _U64.pack_into(memory, f.TOTAL_OFFSET, index + 1)
        return index

    def _kind_of(self, step: Step) -> bytes:
        """The part of its record that all such calls from its line have in common: loops make them again and again."""
        if step.contract is None:
            return _write_kind(step, self._sites.number(step.site))
        key = step.op, step.target, step.fingerprint, id(step.contract), id(step.site)
        known = self._kinds.get(key)
        if known is None:
            if len(self._kinds) >= MOST_KNOWN:
                self._kinds.clear()
            # Held with what they are known by, so that nothing else is ever found in its place.
            written = _write_kind(step, self._sites.number(step.site))
            known = self._kinds[key] = written, step
        return known[0]

    def stencil(self, step: Step) -> Stencil:
        """What writes down `step`, which has no message, as often as it is made, each time with another number."""
        assert step.message is None
        return stencil(self._mapped, self.capacity, self._next, self._thread, self._kind_of(step), step.nbytes)

    def mark(self, index: int, state: f.State) -> None:
        """Record how far step `index` got; ending it stamps the time."""
        self._mark(index, state, 0.0)

    def wait(self, index: int, seconds: float) -> None:
        """Record that the rank waits in step `index`, and that it gives up after `seconds`; 0 is not known."""
        self._mark(index, f.State.WAITING, seconds)

    def _mark(self, index: int, state: f.State, patience: float) -> None:
        memory, slot = self._map, self._slot(index)
        with self._finish:
            if _U64.unpack_from(memory, slot)[0] != index:
                return
            if patience:
                _U32.pack_into(memory, slot + f.PATIENCE_OFFSET, milliseconds(patience))
            if state >= _OVER:
                _U64.pack_into(memory, slot + f.END_OFFSET, time.monotonic_ns())
            memory[slot + f.STATE_OFFSET] = state

    def be_patient(self, index: int, seconds: float) -> None:
        """Record that the rank gives up waiting in step `index` after `seconds`."""
        slot = self._slot(index)
        if self._holds(slot, index):
            _U32.pack_into(self._map, slot + f.PATIENCE_OFFSET, milliseconds(seconds))

    def tell_message(self, index: int, message: Message) -> None:
        """Record of step `index`, a receive from anybody, which message it was."""
        slot = self._slot(index)
        if self._holds(slot, index):
            f.MESSAGE.pack_into(self._map, slot + f.MESSAGE_OFFSET, *_matching(message))

    def fail(self, index: int, error: BaseException) -> None:
        """Record that step `index` raised `error`."""
        slot = self._slot(index)
        if self._holds(slot, index):
            name = f.fit(type(error).__name__, f.ERROR_BYTES).ljust(f.ERROR_BYTES, b"\0")
            self._map[slot + f.ERROR_OFFSET : slot + f.ERROR_OFFSET + f.ERROR_BYTES] = name
        self.mark(index, f.State.RAISED)

    def strike(self, index: int, fault: int) -> None:
        """Record, before it strikes, that fault `fault` of the plan strikes step `index`."""
        slot = self._slot(index)
        if self._holds(slot, index):
            _U16.pack_into(self._map, slot + f.FAULT_OFFSET, fault + 1)
        where = f.FIRED_OFFSET + 4 * fault
        (count,) = _U32.unpack_from(self._map, where)
        _U32.pack_into(self._map, where, count + 1)

    def forget_strikes(self) -> None:
        """Zero the counts of strikes: a new plan begins."""
        self._map[f.FIRED_OFFSET : f.FIRED_OFFSET + 4 * f.MAX_FAULTS] = bytes(4 * f.MAX_FAULTS)

    def let_go(self) -> None:
        """In a forked copy: what it writes from here on is its own, and the file's no more."""
        room = (ctypes.c_char * len(self._map)).from_buffer(self._map)
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        _libc.mmap(ctypes.addressof(room), len(self._map), protection, flags, -1, 0)

    def close(self) -> None:
        """Unmap the file; it stays on disk."""
        self._mapped.release()
        self._map.close()

    def _slot(self, index: int) -> int:
        return f.HEADER_BYTES + (index % self.capacity) * f.RECORD_BYTES

    def _holds(self, slot: int, index: int) -> bool:
        # A step that outlived a whole lap of the ring no longer owns its slot.
        (held,) = _U64.unpack_from(self._map, slot)
        return bool(held == index)

    def __enter__(self) -> LedgerWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def milliseconds(seconds: float) -> int:
    """As a record holds it; 0 is not known, so less than one is one."""
    return min(int(seconds * 1000) or 1, 0xFFFFFFFF)


def _write_kind(step: Step, site: int) -> bytes:
    return f.RECORD_KIND.pack(
        f.State.BEGUN,
        _KIND_CODES[step.kind],
        f.fit(step.op, f.OP_BYTES),
        f.fit(step.target, 76, keep="tail"),
        f.fit(step.fingerprint, f.FINGERPRINT_BYTES),
        b"",
        0,
        site,
        step.digest,
    )


def _matching(message: Message) -> tuple[int, int, int]:
    return message.peer, message.tag & 0xFFFFFFFF, message.number
