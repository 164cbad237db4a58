"""The slot: what one rank tells the others in the fixed-size exchange.

Every exchange of every path moves one slot per rank and the same number of bytes, so ranks in different paths, or with
different arguments, still meet in one collective and can tell each other so. gloo would abort the process if they met
in collectives of different sizes (seen with torch 2.13).

Layout, little endian: magic and version; path, kind of trouble, round, blamed rank; group rank; call number; size of
the payload's frame; nonce; digest; process; place (depth and frames); whether the payload follows; site; text; CRC of
all but itself. A small payload follows.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace

from rankdrill.gathers.agreement.callsite import FRAMES_SENT, Place
from rankdrill.gathers.agreement.outcomes import Kind, Trouble
from rankdrill.gathers.host.liveness import NO_IDENTITY, Identity

__all__ = ["HEADER_BYTES", "PATHS", "TICK_BYTES", "Slot", "SlotError"]

MAGIC = b"RDsl"
VERSION = 1
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

_FIXED = struct.Struct(f"<4sBBBBiiQQ{NONCE_BYTES}s{DIGEST_BYTES}sIIQHBB")
_FRAMES = struct.Struct(f"<{2 * FRAMES_SENT}I")
_TEXTS = struct.Struct(f"<H{SITE_BYTES}sH{TEXT_BYTES}s")
_CRC = struct.Struct("<I")
_FRAMES_AT = _FIXED.size
_TEXTS_AT = _FRAMES_AT + _FRAMES.size
_CRC_AT = HEADER_BYTES - _CRC.size
assert _TEXTS_AT + _TEXTS.size <= _CRC_AT


_TICK = struct.Struct("<4sBBBxiQ")
TICK_BYTES = _TICK.size


class SlotError(Exception):
    """Bytes that are no slot: nobody wrote them, or not whole."""


@dataclass(frozen=True)
class Slot:
    """One rank's contribution to an exchange.

    `text` is the cause where there is trouble, otherwise the arguments that all ranks must have in common. `inline` is
    the frame itself where it fits behind the header.
    """

    path: str
    rank: int
    number: int
    round: int
    place: Place
    nonce: bytes = b""
    size: int = 0
    digest: bytes = b""
    kind: Kind = Kind.OK
    culprit: int | None = None
    identity: Identity = NO_IDENTITY
    text: str = ""
    inline: bytes | memoryview = b""

    @property
    def trouble(self) -> Trouble | None:
        """What this rank reports, or None."""
        return None if self.kind is Kind.OK else Trouble(self.kind, self.text, self.culprit)

    def with_trouble(self, trouble: Trouble) -> Slot:
        """The same slot reporting `trouble` and offering nothing."""
        return replace(
            self, kind=trouble.kind, text=trouble.cause, culprit=trouble.culprit, size=0, digest=b"", inline=b""
        )

    def pack(self, nbytes: int) -> bytearray:
        """The slot in `nbytes` bytes, at least `HEADER_BYTES`."""
        block = bytearray(nbytes)
        culprit = _NOBODY if self.culprit is None else self.culprit
        path, frames = PATHS.index(self.path), self.place.frames
        _FIXED.pack_into(
            block, 0, MAGIC, VERSION, path, self.kind, self.round, culprit, self.rank, self.number, self.size,
            self.nonce, self.digest,
            self.identity.machine, self.identity.pid, self.identity.started, min(self.place.depth, 0xFFFF), len(frames),
            bool(self.inline),
        )  # fmt: skip
        padded = [part for frame in frames for part in frame] + [0] * (2 * (FRAMES_SENT - len(frames)))
        _FRAMES.pack_into(block, _FRAMES_AT, *padded)
        site, text = _tail(self.place.site, SITE_BYTES), _head(self.text, TEXT_BYTES)
        _TEXTS.pack_into(block, _TEXTS_AT, len(site), site, len(text), text)
        block[HEADER_BYTES : HEADER_BYTES + len(self.inline)] = self.inline
        _CRC.pack_into(block, _CRC_AT, _checksum(block, len(self.inline)))
        return block

    def tick(self) -> bytearray:
        """The slot in a few bytes, for when all is well: which call and round it is of, and whether all is well."""
        return bytearray(
            _TICK.pack(MAGIC, VERSION, PATHS.index(self.path), self.kind, (self.round << 24) + self.rank, self.number)
        )

    @staticmethod
    def unpack(block: memoryview) -> Slot:
        """The slot in `block`; `inline` refers to its memory. Raises SlotError."""
        fixed = _FIXED.unpack_from(block)
        if fixed[0] != MAGIC or fixed[1] != VERSION:
            raise SlotError(f"no slot of version {VERSION}: starts with {bytes(block[:8]).hex()}")
        path, kind, turn, culprit, rank, number, size, nonce, digest, machine, pid, started = fixed[2:14]
        depth, count, is_inline = fixed[14:]
        inline = min(size, block.nbytes - HEADER_BYTES) if is_inline else 0
        if _CRC.unpack_from(block, _CRC_AT)[0] != _checksum(block, inline):
            raise SlotError("a slot that is damaged or not whole")
        parts = _FRAMES.unpack_from(block, _FRAMES_AT)
        frames = tuple(zip(parts[0 : 2 * count : 2], parts[1 : 2 * count : 2], strict=True))
        site_bytes, site, text_bytes, text = _TEXTS.unpack_from(block, _TEXTS_AT)
        return Slot(
            PATHS[path], rank, number, turn, Place(_text(site[:site_bytes]), depth, frames), nonce, size, digest,
            Kind(kind), None if culprit == _NOBODY else culprit, Identity(machine, pid, started),
            _text(text[:text_bytes]),
            block[HEADER_BYTES : HEADER_BYTES + inline],
        )  # fmt: skip


def _checksum(block: bytearray | memoryview, inline_bytes: int) -> int:
    view = memoryview(block)
    return zlib.crc32(view[HEADER_BYTES : HEADER_BYTES + inline_bytes], zlib.crc32(view[:_CRC_AT]))


def _head(text: str, limit: int) -> bytes:
    raw = text.encode("utf-8", "replace")
    return raw if len(raw) <= limit else raw[: limit - 3] + b"..."


def _tail(text: str, limit: int) -> bytes:
    raw = text.encode("utf-8", "replace")
    return raw if len(raw) <= limit else b"..." + raw[3 - limit :]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
