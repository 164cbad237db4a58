"""The board: a file in the world's shared memory on which ranks post what they are about to do, for the others to see.

Each rank has a ring of slots of its own, and posts there without a lock: a slot says which call of which group it is
about, and carries a checksum over all it says, so that what a dying rank left half written says nothing. Beside them
stands, for each call, which rank came to it first; and behind them all, the messages under way. Nobody waits for
anybody here.

Two ranks that come at the same moment may each find nobody and take themselves for the first. That is why a rank looks
at its neighbours' slots too: each posts before it looks, so one of two neighbours always sees the other.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rankdrill.ledger.board_format import BENT_OFFSET, CALL, FIRST, FIRSTS, HEADER_BYTES, LOOK, LOOK_AT, START
from rankdrill.ledger.mailbox import BOX_BYTES, Mailbox
from rankdrill.ledger.mapped import mapped
from rankdrill.ledger.posting import Grid, Posting, posting
from rankdrill.ledger.posts import (
    IN_ORDER,
    MARKS,
    MOST_LAID,
    MOST_TOLD,
    ROW,
    Post,
    Told,
    elements,
    laid_for,
    laid_of,
    lie_alike,
    read_post,
)
from rankdrill.step import Contract, Site

__all__ = ["Board", "BoardBreak", "BoardCall", "make_board"]

SLOT_BYTES = 864  # and 8 for each rank, and 8 for each of the first `MOST_LAID`
RING_BYTES = 1 << 16  # for the slots of one rank, roughly: a rank may be that far ahead and still be compared
FEWEST_SLOTS, MOST_SLOTS = 8, 64
MAGIC = b"RDBOARD7"
LOOKS = 20  # at a slot that is just being written

_HEADER = struct.Struct("<8sIII")  # magic, ranks, slots, bytes of a slot
_NOTED_OFFSET = 96
_BREAK_OFFSET = 128
_BREAK = struct.Struct("<QQII")  # group, call, rank that noticed, checksum
assert START.size + MOST_TOLD <= SLOT_BYTES


class BoardCall(NamedTuple):
    """One collective: the group, by a number all its members give it, and which call of the group it is."""

    group: int
    number: int


@dataclass(frozen=True, slots=True)
class BoardBreak:
    """That `rank` found the ranks' contracts for `call` broken."""

    call: BoardCall
    rank: int


class Board:
    """The board of a world, mapped by one of its ranks or, with `rank` None, by its controller."""

    def __init__(self, path: str | os.PathLike[str], rank: int | None = None) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
        self._mapped = mapped(self._map)
        shape: tuple[bytes, int, int, int] = _HEADER.unpack_from(self._map)
        _, self.ranks, self._slots, self._slot_bytes = shape
        self._rank = rank
        self._firsts = HEADER_BYTES
        self._rings = HEADER_BYTES + FIRSTS * FIRST.size
        self._told = Told()
        self._in_slots: list[bytes | None] = [None] * self._slots  # what this rank has told in each of its own
        self.mailbox = Mailbox(self._map, self._rings + self.ranks * self._slots * self._slot_bytes, self.ranks, rank)

    # ------------------------------------------------------------------------------------ posting

    def post(self, call: BoardCall, contract: Contract, site: Site | None) -> int | None:
        """Post that this rank is about to enter `call`; returns the rank that came first, None if this one did."""
        assert self._rank is not None
        told, told_sum = self._told.of(contract, site)
        start = CALL.pack(START.size + len(told), 0, call.group, call.number)
        which = (call.group + call.number) % self._slots
        at = self._rings + (self._rank * self._slots + which) * self._slot_bytes
        sum_ = zlib.crc32(start, told_sum).to_bytes(4, "little")
        if self._in_slots[which] is told:  # a loop makes the same calls again: most of it stands there already
            self._map[at : at + START.size] = sum_ + start
        else:
            self._in_slots[which] = None  # whatever becomes of this rank now
            self._map[at : at + START.size + len(told)] = sum_ + start + told
            self._in_slots[which] = told
        return self._come(call)

    def posting(self, group: int, ranks: Sequence[int], me: int, contract: Contract, site: Site | None) -> Posting:
        """What posts this call of the group of `ranks`, of which this rank is number `me`, as often as it is made.

        Nothing in the contract may be by twos.
        """
        assert self._rank == ranks[me]
        assert contract.each is None
        assert not contract.sends
        told, told_sum = self._told.of(contract, site)
        grid = Grid(self._rings, self._slots, self._slot_bytes, group, tuple(ranks), me)
        return posting(self._mapped, grid, self._in_slots, told, told_sum, contract.digest)

    def retract(self, call: BoardCall) -> None:
        """Take back what this rank has posted for `call`, which the backend refused: it never took place."""
        assert self._rank is not None
        at = self._slot(self._rank, call)
        if self._heads(self._rank, call):
            self._map[at : at + START.size] = bytes(START.size)
        place = self._first_place(call)
        if self._first(call) == self._rank:
            self._map[place : place + FIRST.size] = bytes(FIRST.size)

    def _come(self, call: BoardCall) -> int | None:
        first = self._first(call)
        if first is None:
            assert self._rank is not None
            raw = FIRST.pack(call.group, call.number, self._rank, 0)[:-4]
            place = self._first_place(call)
            self._map[place : place + FIRST.size] = raw + zlib.crc32(raw).to_bytes(4, "little")
        return first

    def _first(self, call: BoardCall) -> int | None:
        place = self._first_place(call)
        group, number, rank, sum_ = FIRST.unpack_from(self._map, place)
        if group != call.group or number != call.number or rank >= self.ranks:
            return None
        return int(rank) if sum_ == zlib.crc32(self._map[place : place + FIRST.size - 4]) else None

    # ------------------------------------------------------------------------------------ looking

    def differs(self, rank: int, call: BoardCall, contract: Contract, me: int, them: int) -> bool:
        """Whether `rank` has posted for `call` what does not fit `contract`; `me` and `them` are ranks in the group.

        For a first look: what it says may be half written.
        """
        at = self._slot(rank, call)
        group, number, digest = LOOK.unpack_from(self._map, at + LOOK_AT)
        if number != call.number or group != call.group:
            return False
        if digest != contract.digest:
            return True
        at += START.size
        _, _, _, _, _, _, _, each, _, members, in_laid = MARKS.unpack_from(self._map, at)
        rows = at + MARKS.size
        if contract.laid or in_laid:
            there = self._row_of(rows + 2 * ROW.size * members, in_laid, me) or (IN_ORDER, IN_ORDER)
            if not lie_alike(laid_for(laid_of(contract), them), there):
                return True
        mine = elements(contract.each, contract.sends, contract.receives, them)
        if mine is None:
            return False
        theirs = (each, each) if each >= 0 else self._row_of(rows, members, me)
        return theirs is not None and mine != theirs[::-1]

    def _row_of(self, rows: int, members: int, member: int) -> tuple[int, int] | None:
        """Of `member` of a group of so many, what the two rows at `rows` say; None where there are none."""
        if member >= members:
            return None
        (given,) = ROW.unpack_from(self._map, rows + ROW.size * member)
        (taken,) = ROW.unpack_from(self._map, rows + ROW.size * (members + member))
        return given, taken

    def posted(self, call: BoardCall, ranks: Iterable[int]) -> list[Post]:
        """What `ranks` have posted for `call`; nothing of those that have not, or are at another call by now."""
        found = (self._post_of(rank, call) for rank in ranks if rank < self.ranks)
        return [post for post in found if post is not None]

    def knows(self, rank: int) -> bool:
        """Whether `rank` has posted anything, in whichever run, that still is there: else it may only be beginning."""
        slots = (self._rings + (rank * self._slots + slot) * self._slot_bytes for slot in range(self._slots))
        return self.mailbox.knows(rank) or any(START.unpack_from(self._map, at)[0] for at in slots)

    def _heads(self, rank: int, call: BoardCall) -> bool:
        _, _, _, group, number = START.unpack_from(self._map, self._slot(rank, call))
        return bool(group == call.group and number == call.number)

    def _post_of(self, rank: int, call: BoardCall) -> Post | None:
        at = self._slot(rank, call)
        for _ in range(LOOKS):
            if not self._heads(rank, call):
                return None
            raw = self._map[at : at + self._slot_bytes]
            sum_, size, *_ = START.unpack_from(raw)
            told = raw[START.size : size]
            if size <= len(raw) and sum_ == zlib.crc32(raw[4 : START.size], zlib.crc32(told)):
                return read_post(rank, told)
            time.sleep(0)  # its writer is at it, or died over it
        return None

    # ------------------------------------------------------------------------------------ the world's state

    @property
    def bent(self) -> bool:
        """Whether the plan has bent a call of any rank in this run: what follows from it is no finding."""
        return self._map[BENT_OFFSET] != 0

    def bend(self) -> None:
        """Note that the plan bends a call."""
        self._map[BENT_OFFSET] = 1

    @property
    def noted(self) -> bool:
        """Whether a rank has a finding in this run, which it may still be looking into."""
        return self._map[_NOTED_OFFSET] != 0

    def note(self) -> None:
        """Note that this rank has one."""
        self._map[_NOTED_OFFSET] = 1

    @property
    def broken(self) -> BoardBreak | None:
        """The break that was noticed in this run, if any."""
        raw = self._map[_BREAK_OFFSET : _BREAK_OFFSET + _BREAK.size]
        group, number, rank, sum_ = _BREAK.unpack(raw)
        return BoardBreak(BoardCall(group, number), rank) if sum_ and sum_ == zlib.crc32(raw[:-4]) else None

    def break_(self, call: BoardCall) -> None:
        """Note that this rank found the contracts for `call` broken; the first such note stays."""
        assert self._rank is not None
        if self.broken is None:
            raw = _BREAK.pack(call.group, call.number, self._rank, 0)[:-4]
            self._map[_BREAK_OFFSET : _BREAK_OFFSET + _BREAK.size] = raw + zlib.crc32(raw).to_bytes(4, "little")

    def begin_run(self) -> None:
        """Forget what the run before came to; ranks are at rest."""
        self._map[BENT_OFFSET:HEADER_BYTES] = bytes(HEADER_BYTES - BENT_OFFSET)

    def close(self) -> None:
        self._mapped.release()
        self._map.close()

    def _slot(self, rank: int, call: BoardCall) -> int:
        return self._rings + (rank * self._slots + (call.group + call.number) % self._slots) * self._slot_bytes

    def _first_place(self, call: BoardCall) -> int:
        return self._firsts + (call.group + call.number) % FIRSTS * FIRST.size


def make_board(path: Path, ranks: int) -> None:
    """Make the board of a world of `ranks`, which must not be there yet. The whole file is there from the start."""
    slot_bytes = SLOT_BYTES + 8 * ranks + 8 * min(ranks, MOST_LAID)
    slots = min(max(RING_BYTES // slot_bytes, FEWEST_SLOTS), MOST_SLOTS)
    size = HEADER_BYTES + FIRSTS * FIRST.size + ranks * (slots * slot_bytes + BOX_BYTES)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)  # a page that a full disk cannot hold would end a rank with SIGBUS
        os.pwrite(fd, _HEADER.pack(MAGIC, ranks, slots, slot_bytes), 0)
    finally:
        os.close(fd)
