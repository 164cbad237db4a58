"""Reads ledgers: live from another process, or from disk, torn or whole."""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from rankdrill.errors import LedgerError
from rankdrill.ledger import format as f
from rankdrill.ledger.groups import Group, GroupReader
from rankdrill.ledger.sites import Sites
from rankdrill.ledger.slots import NOT_WHOLE, Slots
from rankdrill.ledger.whole_paths import whole_path
from rankdrill.step import Kind, Message, Site, Step

__all__ = ["LedgerReader", "LedgerView", "all_ended"]

KNOWN_TEXTS = 4096  # that records have in common
_U32 = struct.Struct("<I")


@dataclass(frozen=True, repr=False)
class LedgerView:
    """The records of one run of one rank, copied out of its ledger; each is decoded when first asked for, and kept.

    `dropped` counts records the ring had already overwritten; `torn` those whose writer was killed half way. `sites`
    holds the call sites that the records speak of, by number, `whole_sites` the same with the lines of libraries that
    lie between, `groups` the groups that the rank has used, in the order in which it came to them. `shift_ns` is added
    to all times: another machine's clock is another one.
    """

    raw: Slots = field(default_factory=Slots)
    first: int = 0
    dropped: int = 0
    sites: Mapping[int, Site] = field(default_factory=dict)
    shift_ns: int = 0
    groups: tuple[Group, ...] = ()
    whole_sites: Mapping[int, Site] = field(default_factory=dict)

    @cached_property
    def through_libraries(self) -> LedgerView:
        """The same with sites that lead through the lines of libraries."""
        return replace(self, sites=self.whole_sites or self.sites)

    @cached_property
    def has_libraries(self) -> bool:
        """Whether a library made a call, or called who made it."""
        return bool(self.whole_sites) and self.whole_sites != self.sites

    def at(self, index: int) -> f.Record | None:
        """The record of this index; None where it is not among these, or torn."""
        place = index - self.first
        return self._record(place) if 0 <= place < len(self.raw) and self.marks[place] != NOT_WHOLE else None

    @cached_property
    def records(self) -> tuple[f.Record, ...]:
        """All whole records, oldest first."""
        return tuple(self.where(_any))

    @property
    def torn(self) -> int:
        return len(self.torn_at)

    @property
    def last_open(self) -> f.Record | None:
        """The step this rank is in, or was in when it ended: the newest that has neither ended nor raised."""
        return next(self.where(lambda kind, state: state.open, newest_first=True), None)

    @property
    def last(self) -> f.Record | None:
        """The newest step, however it ended."""
        return next(self.where(_any, newest_first=True), None)

    @property
    def last_raised(self) -> f.Record | None:
        """The newest step that raised."""
        return next(self.where(lambda kind, state: state is f.State.RAISED, newest_first=True), None)

    @cached_property
    def torn_at(self) -> tuple[int, ...]:
        """The indexes of the torn records."""
        return tuple(self.first + place for place, mark in enumerate(self.marks) if mark == NOT_WHOLE)

    def where(self, wanted: Callable[[Kind, f.State], bool], *, newest_first: bool = False) -> Iterator[f.Record]:
        """The whole records whose kind and state are `wanted`, oldest first; the others are not even decoded."""
        marks = self.marks
        those = {mark for mark in set(marks) if mark != NOT_WHOLE and wanted(f.KINDS[mark >> 8], f.State(mark & 0xFF))}
        places = range(len(marks) - 1, -1, -1) if newest_first else range(len(marks))
        return (self._record(place) for place in places if marks[place] in those)

    def reopened(self, record: f.Record) -> LedgerView:
        """This as if its rank were in `record` still, which has raised: what it waited for there says why."""
        at = (record.index - self.first) * f.RECORD_BYTES
        raw = bytearray(self.raw.joined)
        raw[at + f.STATE_OFFSET] = f.State.WAITING
        raw[at + f.END_OFFSET : at + f.END_OFFSET + 8] = bytes(8)
        return replace(self, raw=Slots(bytes(raw)))

    def __repr__(self) -> str:
        return f"<{len(self.raw)} records{f', {self.dropped} before them lost' if self.dropped else ''}>"

    def __iter__(self) -> Iterator[f.Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def marks(self) -> array[int]:
        """Of each record its kind and state, as `Slots.marks` has them."""
        return self.raw.marks(self.first)

    @cached_property
    def _decoded(self) -> list[f.Record | None]:
        return [None] * len(self.raw)

    def _record(self, place: int) -> f.Record:
        found = self._decoded[place]
        if found is None:
            at = place * f.RECORD_BYTES
            found = self._decoded[place] = _decode(self.raw.joined, at, self.sites, self.shift_ns)
        return found


def all_ended(views: Iterable[LedgerView]) -> bool:
    """Whether every step of `views` has come to its end, as in nearly all runs that went well; decodes no record."""
    states = [view.raw.joined[f.STATE_OFFSET :: f.RECORD_BYTES] for view in views]
    return all(of_one.count(f.State.ENDED) == len(of_one) for of_one in states)


class LedgerReader:
    """A ledger open for reading while its rank may still be writing.

    Raises `LedgerError` for a file that is no ledger, of another version, or says of itself what cannot be.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
        try:
            size = os.fstat(fd).st_size
            if size < f.HEADER_BYTES:
                raise LedgerError(f"{path} is no ledger: {size} bytes, a header has {f.HEADER_BYTES}")
            self._map = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        magic, version, record_bytes, capacity, rank, world_size, *more = f.HEADER.unpack_from(self._map)
        pid, start_ns, sites, groups = more
        if magic != f.MAGIC:
            raise LedgerError(f"{path} is no ledger: it begins with {magic!r}, a ledger with {f.MAGIC!r}")
        if version != f.VERSION or record_bytes != f.RECORD_BYTES:
            raise LedgerError(
                f"{path} has ledger version {version} with records of {record_bytes} bytes; "
                f"this rankdrill reads version {f.VERSION} with records of {f.RECORD_BYTES}"
            )
        # Also while its writer is at the header, which then has no capacity yet.
        if not 1 <= capacity <= f.MOST_RECORDS:
            raise LedgerError(
                f"{path} says that it has room for {capacity} records; a ledger has room for 1 to {f.MOST_RECORDS}"
            )
        here = -(-(size - f.HEADER_BYTES) // f.RECORD_BYTES)
        # One of the usual capacity may have been cut short; a larger one is gone through no further than its file goes.
        if capacity > max(here, f.CAPACITY):
            raise LedgerError(
                f"{path} says that it has room for {capacity} records, and is long enough for {here}: it is damaged"
            )
        if sites > f.MOST_SITES:
            raise LedgerError(
                f"{path} says that it has room for {sites} call sites; a ledger has room for at most {f.MOST_SITES}"
            )
        if groups > f.MOST_GROUPS:
            raise LedgerError(
                f"{path} says that it has room for {groups} groups; a ledger has room for at most {f.MOST_GROUPS}"
            )
        self.rank, self.world_size, self.pid, self.start_ns = rank, world_size, pid, start_ns
        # A truncated file holds fewer slots than its header says; what is there is still evidence.
        self.capacity = min(capacity, (size - f.HEADER_BYTES) // f.RECORD_BYTES)
        self._ring = capacity
        self._room = sites
        self._sites = Sites()
        sites_end = f.HEADER_BYTES + capacity * f.RECORD_BYTES + sites * f.SITE_BYTES
        self._groups = GroupReader(self._map, sites_end, groups)

    @property
    def start_monotonic_ns(self) -> int:
        """What the machine's monotonic clock, by which records are stamped, was at `start_ns`, the time since 1970."""
        return int(struct.unpack_from("<Q", self._map, f.CLOCK_OFFSET)[0])

    @property
    def total(self) -> int:
        """How many steps the rank has begun since the ledger was made."""
        return int(struct.unpack_from("<Q", self._map, f.TOTAL_OFFSET)[0])

    @property
    def heart_ns(self) -> int:
        """When the writer was last known to live, on its machine's monotonic clock; 0 where nobody said so."""
        return int(struct.unpack_from("<Q", self._map, f.HEART_OFFSET)[0])

    @property
    def heart_at(self) -> Site | None:
        """The user's line that the writer was at then; None where nobody said so."""
        (beats,) = _U32.unpack_from(self._map, f.BEATS_OFFSET)
        line, file, function = f.PLACE.unpack_from(self._map, f.PLACES_OFFSET + (beats - 1) % 2 * f.PLACE.size)
        return Site(whole_path(f.text(file)), line, f.text(function)) if beats and line else None

    def fired(self, faults: int) -> tuple[int, ...]:
        """How often each of the plan's first `faults` faults has struck."""
        return struct.unpack_from(f"<{min(faults, f.MAX_FAULTS)}I", self._map, f.FIRED_OFFSET)

    def run(self, start: int, faults: int) -> tuple[LedgerView, tuple[int, ...]]:
        """The records from index `start` on, and how often each of the plan's first `faults` faults has struck."""
        return self.view(start), self.fired(faults) if faults else ()

    def view(self, start: int = 0, *, groups_since: int | None = None) -> LedgerView:
        """A copy of the records from index `start` to the newest.

        With the groups that were written down since then, or since record `groups_since` if that is given.
        """
        total = self.total
        first = max(start, total - self._ring)
        since = start if groups_since is None else groups_since
        if first == total:
            return LedgerView(first=first, dropped=first - start, groups=self._groups.groups(since))
        raw = Slots.of(self._parts(first, total))
        self._read_sites()
        # Last, since a group is written down before the first record that speaks of it.
        groups = self._groups.groups(since)
        known = self._sites
        return LedgerView(raw, first, dropped=first - start, sites=known.users, groups=groups, whole_sites=known.whole)

    def close(self) -> None:
        self._map.close()

    def _read_sites(self) -> None:
        """Take in the call sites that are new; a site is in the table before any record speaks of it."""
        start = f.HEADER_BYTES + self._ring * f.RECORD_BYTES
        for place in range(len(self._sites), self._room):
            at = start + place * f.SITE_BYTES
            raw = self._map[at : at + f.SITE_BYTES]
            if not any(raw[-4:]) or not self._sites.read(raw):  # nothing there: the usual answer
                break

    def _parts(self, first: int, total: int) -> Iterator[tuple[bytes, int]]:
        """The slots of the records from `first` up to `total`, in one part or two: a ring ends somewhere."""
        while first < total:
            at = first % self._ring
            count = min(total - first, self._ring - at)
            start, stop = (f.HEADER_BYTES + place * f.RECORD_BYTES for place in (at, at + count))
            yield self._map[start:stop], count
            first += count


def _any(kind: Kind, state: f.State) -> bool:
    return True


def _decode(raw: bytes, at: int, sites: Mapping[int, Site], shift_ns: int = 0) -> f.Record:
    index, begin, end, nbytes, sequence, thread, fault, state, kind, op, target, mark, error, patience, *more, _ = (
        f.RECORD.unpack_from(raw, at)
    )
    site, digest, peer, tag, number = more
    message = Message(peer, tag, number) if peer != f.NO_MESSAGE else None
    step = Step(
        f.KINDS[kind],
        _text(op),
        _text(target),
        _text(mark),
        nbytes,
        sequence,
        sites.get(site),
        digest,
        message=message,
    )
    if shift_ns:
        begin, end = begin + shift_ns, end + shift_ns if end else 0
    return f.Record(
        index, step, f.State(state), begin, end, thread, fault - 1 if fault else None, _text(error), patience
    )


_text = lru_cache(KNOWN_TEXTS)(f.text)
