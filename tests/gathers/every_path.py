"""Every way to gather one value per rank, under one signature; and payloads that no honest rank sends."""

from __future__ import annotations

import io
import pathlib
import pickle
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance.ways import WAYS, At, Way
from rankdrill.gathers.encoding import archives, wire
from rankdrill.gathers.encoding.wire import Encoded
from tests.gathers.attempts import TIMEOUT_S, replaced

padded: Any = import_module("rankdrill.gathers.all_gather")  # the package has the function under that name

EVERYONE = [0, 1, 2, 3]
Gather = Callable[..., list[Any]]


def of(way: Way) -> Gather:
    """`way` for rank 0 to receive, where one rank does."""

    def gather(value: Any, directory: str, *, weights_only: bool = False) -> list[Any]:
        at = At(dist.group.WORLD, directory, TIMEOUT_S, receiver=0, room=1 << 20, weights_only=weights_only)
        return way.call(value, at)

    gather.__name__ = way.name
    return gather


def all_gather_padded(value: Any, directory: str, *, weights_only: bool = False) -> list[Any]:
    """The way of NCCL, on the CPU."""
    with ExitStack() as stack:
        stack.enter_context(replaced(padded, "_route", lambda *args: padded._Route("cuda")))
        stack.enter_context(replaced(padded, "device_of", lambda group: torch.device("cpu")))
        stack.enter_context(replaced(padded, "name_gpu", lambda device: b"%d" % dist.get_rank()))
        return of(WAYS["all_gather"])(value, directory, weights_only=weights_only)


all_gather_object, gather_object = of(WAYS["all_gather_object"]), of(WAYS["gather_object"])
get_tensors_parallel = of(WAYS["get_tensors_parallel"])
# Those that one calls otherwise are tested by themselves.
ELSEWHERE = ("NFSWorkspace", "gather_and_save_checkpoint")

ANY_VALUE: list[Gather] = [
    all_gather_padded,
    *(of(way) for way in WAYS.values() if not way.tensors_only and way.gather not in ELSEWHERE),
]
"""Gathers of any value. Where only some ranks receive, rank 0 does, and the others get an empty list."""


class Malice:
    """Makes a file where it is unpickled, with the plain pickler."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return leave_a_trace, (self._path,)


def leave_a_trace(path: str) -> None:
    """What unpickling a `Malice` calls."""
    pathlib.Path(path).mkdir()


def archive_of(stream: bytes, elements: bytes = b"", compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive such as `torch.save` makes, of any pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", stream)
        archive.writestr("archive/version", "3")
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", elements)
    return file.getvalue()


def of_bytes(content: bytes) -> Encoded:
    """What travels as an archive, and holds `content`."""
    return Encoded.of([], [memoryview(content)])


def pickled(value: Any, nbytes: int) -> Encoded:
    return wire.encode((value, b"x" * nbytes))


def pickled_behind_an_empty_stream(value: Any, nbytes: int) -> Encoded:
    return of_bytes(pickle.dumps((value, b"x" * nbytes)))


def in_an_archive(value: Any, nbytes: int) -> Encoded:
    return of_bytes(archive_of(pickle.dumps(value, 2), b"x" * nbytes))


def saved_the_old_way(value: Any, nbytes: int) -> Encoded:
    file = io.BytesIO()
    torch.save((value, b"x" * nbytes), file, _use_new_zipfile_serialization=False)
    return of_bytes(file.getvalue())


def archive_with_a_pickle_beside(value: Any, nbytes: int) -> Encoded:
    return Encoded.of([pickle.dumps(value)], [archives.pack("good", torch.zeros(nbytes), True)])


def archive_with_a_buffer_beside(value: Any, nbytes: int) -> Encoded:
    good = archives.pack("good", torch.zeros(nbytes), True)
    return Encoded.of([], [good, memoryview(pickle.dumps(value))])


ATTACKS: list[Callable[[Any, int], Encoded]] = [
    pickled,
    pickled_behind_an_empty_stream,
    in_an_archive,
    saved_the_old_way,
    archive_with_a_pickle_beside,
    archive_with_a_buffer_beside,
]
"""What a rank may send that wants to have `value` unpickled by the others, in more than `nbytes` bytes."""
