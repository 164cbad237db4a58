"""A payload on the wire: pickle protocol 5 with its buffers out of band, in one frame that says whose it is.

Frame, little endian: magic, version, number of buffers, length of the pickle stream, the call's nonce; the length of
each buffer; the stream; the buffers, each on a multiple of `ALIGNMENT`; the nonce again. The nonce at both ends tells a
frame of this call, written whole, from memory that nobody filled and from the frame of another call.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankdrill.gathers.tensors import TensorReductions

__all__ = ["FrameError", "Payload", "decode", "encode"]

MAGIC = b"RDgf"
VERSION = 1
NONCE_BYTES = 8
ALIGNMENT = 64
# Below this a buffer travels inside the stream: its place in the table and its padding would cost more.
IN_BAND_BYTES = 1024
_HEAD = struct.Struct("<4sHxxIQ8s")
_LENGTH = struct.Struct("<Q")


class FrameError(Exception):
    """Bytes that are no frame of this call."""


@dataclass(frozen=True)
class Payload:
    """An encoded object. `content_bytes` counts stream and buffers, `nbytes` the whole frame."""

    stream: Sequence[Any]
    buffers: Sequence[memoryview]
    content_bytes: int
    nbytes: int

    def write_into(self, target: memoryview, nonce: bytes) -> None:
        """Write the frame into `target`, which has `nbytes` bytes."""
        stream_bytes = sum(len(piece) for piece in self.stream)
        _HEAD.pack_into(target, 0, MAGIC, VERSION, len(self.buffers), stream_bytes, nonce)
        position = _HEAD.size
        for buffer in self.buffers:
            _LENGTH.pack_into(target, position, buffer.nbytes)
            position += _LENGTH.size
        for piece in self.stream:
            target[position : position + len(piece)] = piece
            position += len(piece)
        for buffer in self.buffers:
            start = _aligned(position)
            position = start + buffer.nbytes
            target[start:position] = buffer
        target[position : position + NONCE_BYTES] = nonce

    def to_bytearray(self, nonce: bytes) -> bytearray:
        """The frame as one new block of bytes."""
        block = bytearray(self.nbytes)
        self.write_into(memoryview(block), nonce)
        return block


class _Pieces:
    """What a pickler writes to: keeps references, so that a large `bytes` object is not copied on the way."""

    def __init__(self) -> None:
        self.pieces: list[Any] = []

    def write(self, piece: Any) -> int:
        self.pieces.append(piece if isinstance(piece, bytes) else bytes(piece))
        return len(piece)


def encode(value: Any) -> Payload:
    """Encode `value`. Raises whatever pickling it raises.

    Buffers are referred to, not copied: `value` must not change before the frame is written.
    """
    pieces = _Pieces()
    buffers: list[memoryview] = []

    def keep_out_of_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < IN_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    pickler = pickle.Pickler(pieces, protocol=5, buffer_callback=keep_out_of_band)
    pickler.dispatch_table = TensorReductions()  # type: ignore[assignment]
    pickler.dump(value)
    stream_bytes = sum(len(piece) for piece in pieces.pieces)
    position = _HEAD.size + _LENGTH.size * len(buffers) + stream_bytes
    for buffer in buffers:
        position = _aligned(position) + buffer.nbytes
    content = stream_bytes + sum(buffer.nbytes for buffer in buffers)
    return Payload(pieces.pieces, buffers, content, position + NONCE_BYTES)


def decode(frame: memoryview, nonce: bytes) -> Any:
    """The object in `frame`; its tensors and arrays refer to the frame's memory and are writable if that is.

    Raises FrameError for bytes that are no frame of the call that `nonce` names, otherwise whatever unpickling raises.
    """
    stream, buffers = _split(frame, nonce)
    return pickle.loads(stream, buffers=buffers)


def _split(frame: memoryview, nonce: bytes) -> tuple[memoryview, list[memoryview]]:
    if frame.nbytes < _HEAD.size + NONCE_BYTES:
        raise FrameError(f"{frame.nbytes} bytes, too few for a frame")
    magic, version, count, stream_bytes, found = _HEAD.unpack_from(frame)
    if magic != MAGIC or version != VERSION:
        raise FrameError(f"no frame of version {VERSION}: starts with {bytes(frame[:8]).hex()}")
    if found != nonce or frame[frame.nbytes - NONCE_BYTES :] != nonce:
        raise FrameError("not written by this call, or not whole")
    end = frame.nbytes - NONCE_BYTES
    table_end = _HEAD.size + _LENGTH.size * count
    position = table_end + stream_bytes
    if position > end:
        raise FrameError(f"says {position} bytes, has {end}")
    stream = frame[table_end:position]
    buffers = []
    for (length,) in _LENGTH.iter_unpack(frame[_HEAD.size : table_end]):
        start = _aligned(position)
        position = start + length
        if position > end:
            raise FrameError(f"a buffer ends at {position}, the frame at {end}")
        buffers.append(frame[start:position])
    return stream, buffers


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
