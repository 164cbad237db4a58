"""The mailbox: a part of the board on which ranks post each message that they are about to send, or to receive.

A rank has room for the newest `ROOM` of its halves of messages, posted one after the other and without a lock. What
matches two halves stands apart from what they say of themselves, so that a half is found by one search for a few
bytes. What a dying rank left half written says nothing: a checksum covers both.
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
TEXT_BYTES = 512
_KEY = struct.Struct("<QQIIII")  # group, number, source, target, tag, half
_START = struct.Struct("<II")  # checksum, bytes that follow
_DIGEST = struct.Struct("<Q")
BOX_BYTES = ROOM * (_KEY.size + TEXT_BYTES)
assert _START.size + MOST_TOLD <= TEXT_BYTES


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
        told = self._told.of(contract, site)
        key = _key(call, half)
        place = next(self._next) % ROOM
        at, text = self._key_at(self._rank, place), self._text_at(self._rank, place)
        self._map[at : at + _KEY.size] = bytes(_KEY.size)
        start = _START.pack(zlib.crc32(told, zlib.crc32(key)), len(told))
        self._map[text : text + _START.size + len(told)] = start + told
        self._map[at : at + _KEY.size] = key

    def retract(self, call: MessageCall, half: Half) -> None:
        """Take back what this rank has posted of `call`."""
        assert self._rank is not None
        place = self._find(self._rank, _key(call, half))
        if place is not None:
            at = self._key_at(self._rank, place)
            self._map[at : at + _KEY.size] = bytes(_KEY.size)

    def differs(self, call: MessageCall, half: Half, contract: Contract) -> bool:
        """Whether that end of `call` has been posted with something else than `contract`.

        For a first look: what it says may be half written.
        """
        rank = call.of(half)
        place = self._find(rank, _key(call, half)) if rank < self._ranks else None
        if place is None:
            return False
        (digest,) = _DIGEST.unpack_from(self._map, self._text_at(rank, place) + _START.size)
        return bool(digest != contract.digest)

    def posted(self, call: MessageCall, half: Half) -> Post | None:
        """What has been posted at that end of `call`, if it still is there."""
        rank = call.of(half)
        key = _key(call, half)
        place = self._find(rank, key) if rank < self._ranks else None
        return None if place is None else self._read(rank, place, key)

    def everything(self, group: int, tag: int) -> Iterator[tuple[MessageCall, Half, Post]]:
        """All that is still there of a group's messages with this tag."""
        for rank in range(self._ranks):
            for place in range(ROOM):
                at = self._key_at(rank, place)
                key = self._map[at : at + _KEY.size]
                group_, number, source, target, tag_, half = _KEY.unpack(key)
                if (group_, tag_) == (group, tag) and half in (Half.SEND, Half.RECV):
                    post = self._read(rank, place, key)
                    if post is not None:
                        yield MessageCall(group, source, target, tag, number), Half(half), post

    def _read(self, rank: int, place: int, key: bytes) -> Post | None:
        at = self._text_at(rank, place)
        raw = self._map[at : at + TEXT_BYTES]
        sum_, size = _START.unpack_from(raw)
        told = raw[_START.size : _START.size + size]
        whole = len(told) == size >= MARKS.size and sum_ == zlib.crc32(told, zlib.crc32(key))
        return read_post(rank, told) if whole else None

    def _find(self, rank: int, key: bytes) -> int | None:
        first = at = self._key_at(rank, 0)
        end = first + ROOM * _KEY.size
        while (at := self._map.find(key, at, end)) >= 0:
            place, beside = divmod(at - first, _KEY.size)
            if not beside:
                return place
            at += 1
        return None

    def _key_at(self, rank: int, place: int) -> int:
        return self._start + rank * BOX_BYTES + place * _KEY.size

    def _text_at(self, rank: int, place: int) -> int:
        return self._start + rank * BOX_BYTES + ROOM * _KEY.size + place * TEXT_BYTES


def _key(call: MessageCall, half: Half) -> bytes:
    return _KEY.pack(call.group, call.number, call.source, call.target, call.tag, half)
