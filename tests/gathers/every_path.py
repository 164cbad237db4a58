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

from rankdrill import gathers
from rankdrill.gathers.encoding import archives, wire
from rankdrill.gathers.encoding.wire import Payload
from tests.gathers.attempts import TIMEOUT_S, replaced

padded: Any = import_module("rankdrill.gathers.all_gather")  # the package has the function under that name

EVERYONE = [0, 1, 2, 3]


def all_gather_object(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    received: list[Any] = [None] * dist.get_world_size()
    gathers.all_gather_object(received, value, timeout=TIMEOUT_S, **kwargs)
    return received


def gather_object(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    received = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    gathers.gather_object(value, received, timeout=TIMEOUT_S, **kwargs)
    return received or []


def all_gather(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    return gathers.all_gather(value, force_cpu=True, timeout=TIMEOUT_S, **kwargs)


def all_gather_by_files(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    return gathers.all_gather(value, False, True, directory, timeout=TIMEOUT_S, **kwargs)


def all_gather_padded(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    """The way of NCCL, on the CPU."""
    with ExitStack() as stack:
        stack.enter_context(replaced(padded, "_route", lambda *args: padded._Route("cuda")))
        stack.enter_context(replaced(padded, "device_of", lambda group: torch.device("cpu")))
        stack.enter_context(replaced(padded, "name_gpu", lambda device: b"%d" % dist.get_rank()))
        return gathers.all_gather(value, timeout=TIMEOUT_S, **kwargs)


def all_gather_list(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    return gathers.all_gather_list(value, max_size=1 << 20, timeout=TIMEOUT_S, **kwargs)


def all_gather_shm(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    return gathers.all_gather_shm(value, timeout=TIMEOUT_S, **kwargs)


def all_gather_via_filesys(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    return gathers.all_gather_via_filesys(value, directory, timeout=TIMEOUT_S, **kwargs)


def gather(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    return gathers.gather(value, explain=False, timeout=TIMEOUT_S, **kwargs)


def gather_over_the_network(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    return gathers.gather(value, "network", explain=False, timeout=TIMEOUT_S, **kwargs)


def gather_by_files(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    return gathers.gather(value, "files", directory=directory, explain=False, timeout=TIMEOUT_S, **kwargs)


def get_configs_parallel(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    with gathers.get_configs_parallel(value, EVERYONE, timeout=TIMEOUT_S, **kwargs) as seen:
        return seen


def get_configs_parallel_by_files(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    with gathers.get_configs_parallel(value, EVERYONE, None, directory, timeout=TIMEOUT_S, **kwargs) as seen:
        return seen


def get_tensors_parallel(value: Any, directory: str, **kwargs: Any) -> list[Any]:
    with gathers.get_tensors_parallel(value, EVERYONE, timeout=TIMEOUT_S, **kwargs) as seen:
        return seen


ANY_VALUE: list[Callable[..., list[Any]]] = [
    all_gather_object,
    gather_object,
    all_gather,
    all_gather_by_files,
    all_gather_padded,
    all_gather_list,
    all_gather_shm,
    all_gather_via_filesys,
    gather,
    gather_over_the_network,
    gather_by_files,
    get_configs_parallel,
    get_configs_parallel_by_files,
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


def of_bytes(content: bytes) -> Payload:
    """What travels as an archive, and holds `content`."""
    return Payload.of([], [memoryview(content)])


def pickled(value: Any, nbytes: int) -> Payload:
    return wire.encode((value, b"x" * nbytes))


def pickled_behind_an_empty_stream(value: Any, nbytes: int) -> Payload:
    return of_bytes(pickle.dumps((value, b"x" * nbytes)))


def in_an_archive(value: Any, nbytes: int) -> Payload:
    return of_bytes(archive_of(pickle.dumps(value, 2), b"x" * nbytes))


def saved_the_old_way(value: Any, nbytes: int) -> Payload:
    file = io.BytesIO()
    torch.save((value, b"x" * nbytes), file, _use_new_zipfile_serialization=False)
    return of_bytes(file.getvalue())


def archive_with_a_pickle_beside(value: Any, nbytes: int) -> Payload:
    return Payload.of([pickle.dumps(value)], [archives.pack("good", torch.zeros(nbytes), True)])


def archive_with_a_buffer_beside(value: Any, nbytes: int) -> Payload:
    good = archives.pack("good", torch.zeros(nbytes), True)
    return Payload.of([], [good, memoryview(pickle.dumps(value))])


ATTACKS: list[Callable[[Any, int], Payload]] = [
    pickled,
    pickled_behind_an_empty_stream,
    in_an_archive,
    saved_the_old_way,
    archive_with_a_pickle_beside,
    archive_with_a_buffer_beside,
]
"""What a rank may send that wants to have `value` unpickled by the others, in more than `nbytes` bytes."""
