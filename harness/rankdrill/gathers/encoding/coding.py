"""The ways that objects become frames and are had from them: pickled; as archives that torch's safe unpickler loads;
and, for what is bytes already, as they are.

A call has one of them, equal on all ranks. But for the first, pickle is never called on what came, not even on the
frame around it: the frame has an empty stream, and one buffer.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import torch

from rankdrill.gathers.encoding import archives, wire
from rankdrill.gathers.encoding.reading import Readable, Section, fill, in_memory, unpickle
from rankdrill.gathers.encoding.tensors import is_plain, memory_of
from rankdrill.gathers.encoding.wire import Encoded, FrameError, bytes_of, split

__all__ = ["PICKLED", "RAW", "Coding", "coding_for"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

_WHAT = "the payload"
_PROTOCOL = 2  # that of `torch.save`


class Coding(Protocol):
    """How a call's objects become frames, and frames objects. `argument` is what it adds to the call's arguments.

    With `trusting` a frame may lie where the rank that sent it could still change it.
    """

    argument: str
    trusting: bool

    def encode(self, value: Any) -> Encoded:
        """Encode `value`, which must not change before the frame is written. Raises what pickling it raises."""

    def decode(self, frame: memoryview, nonce: bytes) -> Any:
        """The object in `frame`. Raises FrameError, and what loading raises."""

    def decode_copied(self, frame: memoryview, nonce: bytes) -> Any:
        """As `decode`, but nothing of the object lies in the frame. Raises MemoryError too."""

    def read(self, file: Readable, stream: slice, places: Sequence[slice], part: Callable[[slice], memoryview]) -> Any:
        """The object whose frame is in `file`, with a stream and buffers where `wire.split` found them.

        `part` gets a part of the file into memory. Raises FrameError, and what loading raises.
        """


def coding_for(weights_only: bool, *, owned: bool = False) -> Coding:
    """The coding of a call with `weights_only`, which has torch's meaning; with `owned` tensors can be resized."""
    return SAFE if weights_only else OWNED if owned else PICKLED


class Pickled:
    """Pickle protocol 5, for ranks that trust one another; tensors and arrays lie where the frame lies."""

    argument = ""
    trusting = True

    def encode(self, value: Any) -> Encoded:
        """As `Coding`."""
        return wire.encode(value)

    def decode(self, frame: memoryview, nonce: bytes) -> Any:
        """As `Coding`."""
        return wire.decode(frame, nonce)

    def decode_copied(self, frame: memoryview, nonce: bytes) -> Any:
        """As `Coding`."""
        return wire.decode_copied(frame, nonce)

    def read(self, file: Readable, stream: slice, places: Sequence[slice], part: Callable[[slice], memoryview]) -> Any:
        """As `Coding`."""
        buffers = [part(place) for place in places]
        file.seek(stream.start)
        return unpickle(file, buffers)


class Owned(Pickled):
    """As `Pickled`, but tensors lie in memory of torch's own, as in torch's gathers: they can be resized."""

    def decode(self, frame: memoryview, nonce: bytes) -> Any:
        """As `Coding`."""
        stream, places = split(frame, nonce)
        return pickle.loads(frame[stream], buffers=[_read_into_torchs(in_memory(frame), place) for place in places])

    decode_copied = decode

    def read(self, file: Readable, stream: slice, places: Sequence[slice], part: Callable[[slice], memoryview]) -> Any:
        """As `Coding`."""
        buffers = [_read_into_torchs(file, place) for place in places]
        file.seek(stream.start)
        return unpickle(file, buffers)


class Safe:
    """Archives of `torch.save`, loaded with ``weights_only=True``; everything is copied out of the frame."""

    argument = "weights_only=True"
    trusting = False

    def encode(self, value: Any) -> Encoded:
        """As `Coding`. Raises LoadError for what no rank would load."""
        return Encoded.of([], [archives.pack(_WHAT, value, True, _PICKLE)])

    def decode(self, frame: memoryview, nonce: bytes) -> Any:
        """As `Coding`. Raises LoadError."""
        return _load(in_memory(frame), *split(frame, nonce))

    decode_copied = decode

    def read(self, file: Readable, stream: slice, places: Sequence[slice], part: Callable[[slice], memoryview]) -> Any:
        """As `Coding`. Raises LoadError. Tensors are read straight into their own memory."""
        return _load(file, stream, places)


class Raw:
    """One uint8 tensor, which lies where the frame lies."""

    argument = ""
    trusting = False

    def encode(self, value: Any) -> Encoded:
        """As `Coding`; `value` is a uint8 tensor that is not empty."""
        return Encoded.of([], [bytes_of(value)])

    def decode(self, frame: memoryview, nonce: bytes) -> Any:
        """As `Coding`."""
        return torch.frombuffer(frame[_only(*split(frame, nonce))], dtype=torch.uint8)

    def decode_copied(self, frame: memoryview, nonce: bytes) -> Any:
        """As `Coding`."""
        return self.decode(frame, nonce).clone()

    def read(self, file: Readable, stream: slice, places: Sequence[slice], part: Callable[[slice], memoryview]) -> Any:
        """As `Coding`."""
        return torch.frombuffer(part(_only(stream, places)), dtype=torch.uint8)


def _read_into_torchs(file: Readable, place: slice) -> memoryview:
    """What is at `place` of the file, in new memory of torch's."""
    memory = memory_of(torch.empty(place.stop - place.start, dtype=torch.uint8, device="cpu"))
    file.seek(place.start)
    fill(file, memory)
    return memory


def _only(stream: slice, places: Sequence[slice]) -> slice:
    """Where the only buffer of a frame without a stream is. Raises FrameError for another frame."""
    if stream.start != stream.stop or len(places) != 1:
        raise FrameError(f"{stream.stop - stream.start} bytes of pickle and {len(places)} buffers, not one buffer")
    return places[0]


def _load(file: Readable, stream: slice, places: Sequence[slice]) -> Any:
    archive = Section(file, _only(stream, places))
    archives.check_stored(_WHAT, archive)
    return archives.load(_WHAT, archive, _here, weights_only=True)


def _here(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage:
    """Where a storage that was at `location` goes: the current CUDA device if it was on one, else the CPU."""
    if location.startswith("cuda") and torch.cuda.is_available():
        return storage.cuda()  # type: ignore[return-value]
    return storage


class _OwnElements(pickle.Pickler):
    """Makes `torch.save` ship the elements of a view, and not the storage they lie in."""

    def reducer_override(self, value: Any) -> Any:
        # A parameter is reduced to a tensor, which comes here then.
        if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter) or not is_plain(value):
            return NotImplemented
        # An expanded tensor has more elements than memory, and stays so.
        if value.untyped_storage().nbytes() <= value.numel() * value.element_size():
            return NotImplemented
        with torch.no_grad():
            own = value.detach().clone().as_subclass(type(value)).requires_grad_(value.requires_grad)
        own.__dict__.update(value.__dict__)
        return own.__reduce_ex__(_PROTOCOL)  # type: ignore[no-untyped-call]


# What `torch.save` wants to have of a module: its name and its pickler.
_PICKLE = SimpleNamespace(__name__=__name__, Pickler=_OwnElements)

PICKLED: Coding = Pickled()
OWNED: Coding = Owned()
SAFE: Coding = Safe()
RAW: Coding = Raw()
