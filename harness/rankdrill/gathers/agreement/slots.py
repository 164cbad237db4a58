"""The slot: what one rank tells the others in the fixed-size exchange.

Every exchange of every path moves one slot per rank and the same number of bytes, so ranks in different paths, or with
different arguments, still meet in one collective and can tell each other so. gloo would abort the process if they met
in collectives of different sizes (seen with torch 2.13).

Layout, little endian: first what is equal on all ranks where all is well: magic and version; path, kind of trouble,
round, blamed rank; call number; place (depth and frames); site; text. Then what is a rank's own: its group rank, the
size of its payload's frame, nonce, digest, process, and where the payload is. Last a CRC of all but itself. A small
payload follows. So a rank need not read from the others' slots what stands in its own.
"""

from __future__ import annotations

import struct
import zlib
from itertools import chain, repeat
from typing import Any, NamedTuple

from rankdrill.gathers.agreement.callsite import FRAMES_SENT, CallPlace
from rankdrill.gathers.agreement.outcomes import Trouble, TroubleKind
from rankdrill.gathers.host.liveness import NO_IDENTITY, Identity

__all__ = ["HEADER_BYTES", "PATHS", "TICK_BYTES", "Reader", "Slot", "SlotError"]

MAGIC = b"RDsl"
VERSION = 2
HEADER_BYTES = 704
NONCE_BYTES = 16
DIGEST_BYTES = 16
SITE_BYTES = 160
TEXT_BYTES = 320
_NOBODY = -1

PATHS = (
    "all_gather",
    "all_gather_via_filesys",
    "all_gather_shm",
    "all_gather_list",
    "all_gather_object",
    "gather_object",
    "NFSWorkspace",
    "NFSWorkspace.write_configs_and_weights",
    "get_configs_parallel",
    "get_tensors_parallel",
    "gather_and_save_checkpoint",
    "load_checkpoint",
    "gather",
)

_FIXED = struct.Struct("<4sBBBBiQHB")
_FRAMES = struct.Struct(f"<{2 * FRAMES_SENT}I")
_TEXTS = struct.Struct(f"<H{SITE_BYTES}sH{TEXT_BYTES}s")
_OWN = struct.Struct(f"<iQ{NONCE_BYTES}s{DIGEST_BYTES}sIIQB")
_CRC = struct.Struct("<I")
_FRAMES_AT = _FIXED.size
_TEXTS_AT = _FRAMES_AT + _FRAMES.size
_CRC_AT = HEADER_BYTES - _CRC.size
_OWN_AT = _CRC_AT - _OWN.size
assert _TEXTS_AT + _TEXTS.size <= _OWN_AT

_INLINE, _IN_TRAY = 1, 2

_TICK = struct.Struct("<4sBBBBQ")
TICK_BYTES = _TICK.size


class SlotError(Exception):
    """Bytes that are no slot: nobody wrote them, or not whole."""


class Slot(NamedTuple):
    """One rank's contribution to an exchange.

    `text` is the cause where there is trouble, otherwise the arguments that all ranks must have in common. `inline` is
    the frame itself where it fits behind the header, and `in_tray` says that it is in its rank's tray.
    """

    path: str
    rank: int
    number: int
    round: int
    place: CallPlace
    nonce: bytes = b""
    size: int = 0
    digest: bytes = b""
    kind: TroubleKind = TroubleKind.OK
    culprit: int | None = None
    identity: Identity = NO_IDENTITY
    text: str = ""
    inline: bytes | memoryview = b""
    in_tray: bool = False

    @property
    def trouble(self) -> Trouble | None:
        """What this rank reports, or None."""
        return None if self.kind is TroubleKind.OK else Trouble(self.kind, self.text, self.culprit)

    def with_trouble(self, trouble: Trouble) -> Slot:
        """The same slot reporting `trouble` and offering nothing."""
        nothing = self._replace(size=0, digest=b"", inline=b"", in_tray=False)
        return nothing._replace(kind=trouble.kind, text=trouble.cause, culprit=trouble.culprit)

    def pack(self, nbytes: int) -> bytearray:
        """The slot in `nbytes` bytes, at least `HEADER_BYTES`."""
        block = bytearray(nbytes)
        culprit = _NOBODY if self.culprit is None else self.culprit
        place, frames, identity = self.place, self.place.frames, self.identity
        _FIXED.pack_into(
            block, 0, MAGIC, VERSION, PATHS.index(self.path), self.kind, self.round, culprit, self.number,
            min(place.depth, 0xFFFF), len(frames),
        )  # fmt: skip
        _FRAMES.pack_into(block, _FRAMES_AT, *chain.from_iterable(frames), *repeat(0, 2 * (FRAMES_SENT - len(frames))))
        site, text = _tail(place.site, SITE_BYTES), _head(self.text, TEXT_BYTES)
        _TEXTS.pack_into(block, _TEXTS_AT, len(site), site, len(text), text)
        _OWN.pack_into(
            block, _OWN_AT, self.rank, self.size, self.nonce, self.digest,
            identity.machine, identity.pid, identity.started, _IN_TRAY if self.in_tray else bool(self.inline),
        )  # fmt: skip
        block[HEADER_BYTES : HEADER_BYTES + len(self.inline)] = self.inline
        _CRC.pack_into(block, _CRC_AT, _checksum(block, len(self.inline), zlib.crc32(memoryview(block)[:_OWN_AT])))
        return block

    def tick(self) -> bytearray:
        """The slot in a few bytes, for when all is well: which call and round it is of, and whether all is well."""
        return bytearray(_TICK.pack(MAGIC, VERSION, PATHS.index(self.path), self.kind, self.round, self.number))

    @staticmethod
    def unpack(block: memoryview) -> Slot:
        """The slot in `block`; `inline` refers to its memory. Raises SlotError."""
        _refuse_others(block)
        own = _own_of(block, zlib.crc32(block[:_OWN_AT]))
        return _with_own(_common_of(block), *own)


class Reader:
    """Reads slots of an exchange to which this rank gave `mine`, a packed slot.

    All that agree with it in what is not a rank's own have one and the same `place`.
    """

    def __init__(self, mine: bytearray) -> None:
        self._mine = _common_of(memoryview(mine))
        self._common = bytes(mine[:_OWN_AT])
        self._common_crc = zlib.crc32(self._common)

    def read(self, block: memoryview) -> Slot:
        """As `Slot.unpack`."""
        if bytes(block[:_OWN_AT]) != self._common:
            return Slot.unpack(block)
        return _with_own(self._mine, *_own_of(block, self._common_crc))


class _Common(NamedTuple):
    """What is equal on all ranks where all is well, in the order in which `Slot` has it."""

    path: str
    number: int
    round: int
    place: CallPlace
    kind: TroubleKind
    culprit: int | None
    text: str


def _refuse_others(block: memoryview) -> None:
    magic, version = _FIXED.unpack_from(block)[:2]
    if magic != MAGIC or version != VERSION:
        raise SlotError(f"no slot of version {VERSION}: starts with {bytes(block[:8]).hex()}")


def _common_of(block: memoryview) -> _Common:
    path, kind, turn, culprit, number, depth, count = _FIXED.unpack_from(block)[2:]
    parts = _FRAMES.unpack_from(block, _FRAMES_AT)
    frames = tuple(zip(parts[0 : 2 * count : 2], parts[1 : 2 * count : 2], strict=True))
    site_bytes, site, text_bytes, text = _TEXTS.unpack_from(block, _TEXTS_AT)
    place = CallPlace(_text(site[:site_bytes]), depth, frames)
    blamed = None if culprit == _NOBODY else culprit
    return _Common(PATHS[path], number, turn, place, TroubleKind(kind), blamed, _text(text[:text_bytes]))


def _with_own(common: _Common, own: tuple[Any, ...], inline: memoryview) -> Slot:
    path, number, turn, place, kind, culprit, text = common
    rank, size, nonce, digest, machine, pid, started, where = own
    identity = Identity(machine, pid, started) if pid else NO_IDENTITY
    in_tray = where == _IN_TRAY
    return Slot(path, rank, number, turn, place, nonce, size, digest, kind, culprit, identity, text, inline, in_tray)


def _own_of(block: memoryview, common_crc: int) -> tuple[tuple[Any, ...], memoryview]:
    """What is a rank's own, and its payload. Raises SlotError unless the checksum is right."""
    own = _OWN.unpack_from(block, _OWN_AT)
    nbytes = min(own[1], block.nbytes - HEADER_BYTES) if own[-1] == _INLINE else 0
    if _CRC.unpack_from(block, _CRC_AT)[0] != _checksum(block, nbytes, common_crc):
        raise SlotError("a slot that is damaged or not whole")
    return own, block[HEADER_BYTES : HEADER_BYTES + nbytes]


def _checksum(block: bytearray | memoryview, inline_bytes: int, common_crc: int) -> int:
    view = memoryview(block)
    return zlib.crc32(view[HEADER_BYTES : HEADER_BYTES + inline_bytes], zlib.crc32(view[_OWN_AT:_CRC_AT], common_crc))


def _head(text: str, limit: int) -> bytes:
    raw = text.encode("utf-8", "replace")
    return raw if len(raw) <= limit else raw[: limit - 3] + b"..."


def _tail(text: str, limit: int) -> bytes:
    raw = text.encode("utf-8", "replace")
    return raw if len(raw) <= limit else b"..." + raw[3 - limit :]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
