"""The mailbox: a part of the board on which ranks post each message that they are about to send, or to receive.

A rank has room for the newest `ROOM` of its halves of messages, posted one after the other and without a lock. The
hashes of their names stand apart from what they say, so that a half is found by one search for a few bytes. What a
dying rank left half written says nothing: a checksum covers name and text.
"""

from __future__ import annotations

import itertools
import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from rankdrill.ledger.posts import MARKS, MOST_TOLD, Post, Told, read_post
from rankdrill.step import Contract, Site

__all__ = ["BOX_BYTES", "Half", "Mailbox", "MessageCall"]

ROOM = 64  # halves of messages of one rank: who is further ahead is not compared
TEXT_BYTES = 864
_HASH = struct.Struct("<Q")
_NAME = struct.Struct("<QQIIII")  # group, number, source, target, tag, half
_START = struct.Struct("<II")  # checksum, bytes that follow the name
_DIGEST = struct.Struct("<Q")
BOX_BYTES = ROOM * (_HASH.size + TEXT_BYTES)
_TOLD = _START.size + _NAME.size  # where what is told of a half begins
assert _TOLD + MOST_TOLD <= TEXT_BYTES


class Half(IntEnum):
    """Which end of a message a rank is."""

    SEND = 1
    RECV = 2

    @property
    def other(self) -> Half:
        return Half.RECV if self is Half.SEND else Half.SEND


@dataclass(frozen=True, slots=True)
class MessageCall:
    """One message: the group, by a number all its members give it, from and to which global rank, and which one."""

    group: int
    source: int
    target: int
    tag: int
    number: int

    def of(self, half: Half) -> int:
        """The rank at that end."""
        return self.source if half is Half.SEND else self.target


class Mailbox:
    """The messages of a world of `ranks`, in `memory` from `start` on, as `rank` or the controller sees them."""

    def __init__(self, memory: mmap.mmap, start: int, ranks: int, rank: int | None) -> None:
        self._map = memory
        self._start = start
        self._ranks = ranks
        self._rank = rank
        self._next = itertools.count()
        self._told = Told()

    def post(self, call: MessageCall, half: Half, contract: Contract, site: Site | None) -> None:
        """Post that this rank is about to send or to receive `call`."""
        assert self._rank is not None
        told, _ = self._told.of(contract, site)
        name = _name(call, half)
        place = next(self._next) % ROOM
        at, text = self._hash_at(self._rank, place), self._text_at(self._rank, place)
        self._map[at : at + _HASH.size] = bytes(_HASH.size)
        start = _START.pack(zlib.crc32(told, zlib.crc32(name)), len(told))
        self._map[text : text + _TOLD + len(told)] = start + name + told
        self._map[at : at + _HASH.size] = _hash(call, half)

    def retract(self, call: MessageCall, half: Half) -> None:
        """Take back what this rank has posted of `call`."""
        assert self._rank is not None
        place = self._find(self._rank, call, half)
        if place is not None:
            at = self._hash_at(self._rank, place)
            self._map[at : at + _HASH.size] = bytes(_HASH.size)

    def differs(self, call: MessageCall, half: Half, contract: Contract) -> bool:
        """Whether that end of `call` has been posted with something else than `contract`.

        For a first look: what it says may be half written.
        """
        rank = call.of(half)
        place = self._find(rank, call, half)
        if place is None:
            return False
        (digest,) = _DIGEST.unpack_from(self._map, self._text_at(rank, place) + _TOLD)
        return bool(digest != contract.digest)

    def posted(self, call: MessageCall, half: Half) -> Post | None:
        """What has been posted at that end of `call`, if it still is there."""
        rank = call.of(half)
        place = self._find(rank, call, half)
        found = self._read(rank, place) if place is not None else None
        return found[2] if found is not None and found[:2] == (call, half) else None

    def everything(self, group: int) -> Iterator[tuple[MessageCall, Half, Post]]:
        """All that is still there of a group's messages."""
        for rank in range(self._ranks):
            for place in range(ROOM):
                found = self._read(rank, place)
                if found is not None and found[0].group == group:
                    yield found

    def knows(self, rank: int) -> bool:
        """Whether `rank` has posted anything that still is there."""
        at = self._hash_at(rank, 0)
        return any(self._map[at : at + ROOM * _HASH.size])

    def _read(self, rank: int, place: int) -> tuple[MessageCall, Half, Post] | None:
        at = self._hash_at(rank, place)
        if not any(self._map[at : at + _HASH.size]):
            return None  # never posted, or taken back
        at = self._text_at(rank, place)
        raw = self._map[at : at + TEXT_BYTES]
        sum_, size = _START.unpack_from(raw)
        name, told = raw[_START.size : _TOLD], raw[_TOLD : _TOLD + size]
        group, number, source, target, tag, half = _NAME.unpack(name)
        if len(told) != size or size < MARKS.size or sum_ != zlib.crc32(told, zlib.crc32(name)):
            return None
        return MessageCall(group, source, target, tag, number), Half(half), read_post(rank, told)

    def _find(self, rank: int, call: MessageCall, half: Half) -> int | None:
        if rank >= self._ranks:
            return None
        wanted = _hash(call, half)
        first = at = self._hash_at(rank, 0)
        end = first + ROOM * _HASH.size
        while (at := self._map.find(wanted, at, end)) >= 0:
            place, beside = divmod(at - first, _HASH.size)
            if not beside:
                return place
            at += 1
        return None

    def _hash_at(self, rank: int, place: int) -> int:
        return self._start + rank * BOX_BYTES + place * _HASH.size

    def _text_at(self, rank: int, place: int) -> int:
        return self._start + rank * BOX_BYTES + ROOM * _HASH.size + place * TEXT_BYTES


def _name(call: MessageCall, half: Half) -> bytes:
    return _NAME.pack(call.group, call.number, call.source, call.target, call.tag, half)


def _hash(call: MessageCall, half: Half) -> bytes:
    # That of a tuple of integers is the same in every process; 0 is an empty place.
    hashed = hash((call.group, call.number, call.source, call.target, call.tag, half))
    return _HASH.pack(hashed & 0xFFFFFFFFFFFFFFFF or 1)
