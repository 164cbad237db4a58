"""A payload on the wire: pickle protocol 5 with its buffers out of band, in one frame that says whose it is.

Frame, little endian: magic, version, number of buffers, length of the pickle stream, the call's nonce; the length of
each buffer; the stream, if it is long with a gap before it; the buffers, each on a multiple of `ALIGNMENT`; the nonce
again. The nonce at both ends tells a
frame of this call, written whole, from memory that nobody filled and from the frame of another call.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from rankdrill.gathers.encoding.tensors import TensorReductions
from rankdrill.gathers.host.pages import fresh

__all__ = [
    "FRAME_NONCE_BYTES",
    "HEAD_BYTES",
    "Encoded",
    "FrameError",
    "Head",
    "bytes_of",
    "decode",
    "decode_copied",
    "encode",
    "split",
]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

MAGIC = b"RDgf"
VERSION = 2
FRAME_NONCE_BYTES = 8
ALIGNMENT = 64
# Below this a buffer travels inside the stream: its place in the table and its padding would cost more.
IN_BAND_BYTES = 1024
# A long stream is mostly a large `bytes`, whose bytes begin 48 into a page in memory. Copies to up to 63 bytes further
# into a page than they come from take half as long again (AMD EPYC; 64 MB in 58 ms, not 37), whichever of the two is
# the frame: so in the frame they begin beyond 112, 11 bytes into the stream.
LONG_STREAM_BYTES = 1 << 20
_GAP_BYTES = 64
_HEAD = struct.Struct("<4sHxxIQ8s")
_LENGTH = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size


class FrameError(Exception):
    """Bytes that are no frame of this call."""


@dataclass(frozen=True)
class Encoded:
    """An encoded object. `content_bytes` counts stream and buffers, `nbytes` the whole frame."""

    stream: Sequence[Any]
    buffers: Sequence[memoryview]
    content_bytes: int
    nbytes: int

    @staticmethod
    def of(stream: Sequence[Any], buffers: Sequence[memoryview]) -> Encoded:
        """The payload of a stream in pieces and of buffers, none of them empty."""
        stream_bytes = sum(len(piece) for piece in stream)
        position = _stream_start(len(buffers), stream_bytes) + stream_bytes
        for buffer in buffers:
            position = _aligned(position) + buffer.nbytes
        content = stream_bytes + sum(buffer.nbytes for buffer in buffers)
        return Encoded(stream, buffers, content, position + FRAME_NONCE_BYTES)

    def pieces(self, nonce: bytes) -> Iterator[Any]:
        """The frame, piece by piece; large ones are the object's own memory."""
        stream_bytes = sum(len(piece) for piece in self.stream)
        yield _HEAD.pack(MAGIC, VERSION, len(self.buffers), stream_bytes, nonce)
        yield b"".join(_LENGTH.pack(buffer.nbytes) for buffer in self.buffers)
        position = _stream_start(len(self.buffers), stream_bytes)
        yield bytes(position - _table_end(len(self.buffers)))
        yield from self.stream
        position += stream_bytes
        for buffer in self.buffers:
            yield bytes(_aligned(position) - position)
            yield buffer
            position = _aligned(position) + buffer.nbytes
        yield nonce

    def blocks(self, nonce: bytes, block_bytes: int) -> Iterator[memoryview]:
        """The frame in blocks of `block_bytes`, the last one shorter; a block's memory is used again for the next."""
        block = memoryview(bytearray(min(block_bytes, self.nbytes)))
        filled = 0
        for piece in self.pieces(nonce):
            rest = memoryview(piece)
            while rest.nbytes:
                taken = min(block.nbytes - filled, rest.nbytes)
                block[filled : filled + taken] = rest[:taken]
                rest, filled = rest[taken:], filled + taken
                if filled == block.nbytes:
                    yield block
                    filled = 0
        if filled:
            yield block[:filled]

    def write_into(self, target: memoryview, nonce: bytes) -> None:
        """Write the frame into `target`, which has `nbytes` bytes."""
        position = 0
        for piece in self.pieces(nonce):
            target[position : position + len(piece)] = piece
            position += len(piece)

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


def encode(value: Any) -> Encoded:
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
    return Encoded.of(pieces.pieces, buffers)


def decode(frame: memoryview, nonce: bytes) -> Any:
    """The object in `frame`; its tensors and arrays refer to the frame's memory and are writable if that is.

    Raises FrameError for bytes that are no frame of the call that `nonce` names, otherwise whatever unpickling raises.
    """
    stream, buffers = split(frame, nonce)
    return pickle.loads(frame[stream], buffers=[frame[buffer] for buffer in buffers] if buffers else ())


def decode_copied(frame: memoryview, nonce: bytes) -> Any:
    """As `decode`, but the object has its own memory. Raises MemoryError too."""
    stream, buffers = split(frame, nonce)
    return pickle.loads(frame[stream], buffers=[_copy(frame[buffer]) for buffer in buffers])


def _copy(buffer: memoryview) -> memoryview:
    block = fresh(buffer.nbytes)
    block[:] = buffer
    return block


def split(frame: memoryview, nonce: bytes) -> tuple[slice, list[slice]]:
    """Where stream and buffers are in `frame`. Raises FrameError as `decode`."""
    if frame.nbytes < HEAD_BYTES + FRAME_NONCE_BYTES:
        raise FrameError(f"{frame.nbytes} bytes, too few for a frame")
    head = Head.parse(frame[:HEAD_BYTES], nonce, frame.nbytes)
    if frame[frame.nbytes - FRAME_NONCE_BYTES :] != nonce:
        raise FrameError("not written whole")
    return head.layout(frame[HEAD_BYTES : head.table_end])


class Head(NamedTuple):
    """How a frame of `nbytes` bytes begins: how many buffers it has, and how long its stream is."""

    buffers: int
    stream_bytes: int
    nbytes: int

    @staticmethod
    def parse(raw: bytes | memoryview, nonce: bytes, nbytes: int) -> Head:
        """The head in the first `HEAD_BYTES` of a frame. Raises FrameError, also if what it says does not fit."""
        magic, version, count, stream_bytes, found = _HEAD.unpack(raw)
        if magic != MAGIC or version != VERSION:
            raise FrameError(f"no frame of version {VERSION}: starts with {bytes(raw[:8]).hex()}")
        if found != nonce:
            raise FrameError("not written by this call")
        head = Head(count, stream_bytes, nbytes)
        # Before anything is read or allocated by what it says.
        if _stream_start(count, stream_bytes) + stream_bytes > head.end:
            raise FrameError(f"says {count} buffers and {stream_bytes} bytes of stream, has {head.end} bytes")
        return head

    @property
    def table_end(self) -> int:
        """Where the table of buffer lengths ends."""
        return _table_end(self.buffers)

    @property
    def end(self) -> int:
        """Where the last buffer must have ended."""
        return self.nbytes - FRAME_NONCE_BYTES

    def layout(self, table: bytes | memoryview) -> tuple[slice, list[slice]]:
        """Where stream and buffers are, `table` being the lengths of the buffers. Raises FrameError."""
        start = _stream_start(self.buffers, self.stream_bytes)
        position = start + self.stream_bytes
        stream = slice(start, position)
        buffers = []
        for (length,) in _LENGTH.iter_unpack(table):
            start = _aligned(position)
            position = start + length
            # No buffer is empty: else a frame could have many more of them than it has room for.
            if not length or position > self.end:
                raise FrameError(f"a buffer of {length} bytes ends at {position}, the frame at {self.end}")
            buffers.append(slice(start, position))
        return stream, buffers


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor of bytes."""
    array: Any = tensor.numpy()
    return memoryview(array)


def _table_end(buffers: int) -> int:
    return HEAD_BYTES + _LENGTH.size * buffers


def _stream_start(buffers: int, stream_bytes: int) -> int:
    end = _table_end(buffers)
    return end if stream_bytes < LONG_STREAM_BYTES else _aligned(end + _GAP_BYTES)


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT
