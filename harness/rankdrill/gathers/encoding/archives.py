"""Archives of `torch.save`: made in memory, tried, checked, and loaded by torch alone.

With ``weights_only=True`` torch unpickles with an unpickler of its own, which makes nothing but tensors, plain
containers and what `torch.serialization.add_safe_globals` allows, and calls nothing else.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from typing import Any

import torch

from rankdrill.errors import describe

__all__ = ["LoadError", "check_stored", "load", "pack"]

# The end of a zip archive: the record that closes it; before that, in archives of torch, a locator and its 64-bit form.
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_END_MAGIC, _LOCATOR_MAGIC, _END_64_MAGIC = b"PK\5\6", b"PK\6\7", b"PK\6\6"
_TAIL_BYTES = _END_64.size + _LOCATOR.size + _END.size

# Where torch's advice ends and begins again around the cause (torch 2.13); it is longer than a message may be here.
_CAUSE_AFTER, _CAUSE_BEFORE = "WeightsUnpickler error:", "Check the documentation of torch.load"


class LoadError(Exception):
    """An archive that does not load, or that is not loaded."""


def pack(what: str, value: Any, weights_only: bool, pickle_module: Any = pickle) -> memoryview:
    """`value` as `torch.save` writes it. Raises LoadError for what could not be loaded again, and what pickling raises.

    `what` names it in messages; `pickle_module` is that of `torch.save`.
    """
    file = io.BytesIO()
    torch.save(value, file, pickle_module=pickle_module)
    try:
        # What it is made of is tried, not its elements: 64 MB take 1 ms, and 70 if they are read (torch 2.13).
        load(what, file, "meta" if weights_only else "cpu", weights_only)
    except LoadError:
        if not weights_only:
            raise
        load(what, file, "cpu", weights_only)  # there is no quantized tensor on the meta device
    return file.getbuffer()


def load(what: str, file: Any, map_location: Any, weights_only: bool, mmap: bool = False) -> Any:
    """What is in the archive `file`: a path, or a file, which is read from its beginning.

    Arguments are those of `torch.load`. Raises LoadError, OSError, MemoryError.
    """
    try:
        if not isinstance(file, str):
            file.seek(0)
        return torch.load(file, map_location=map_location, weights_only=weights_only, mmap=mmap)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        unsafe = _unsafe_types(file) if weights_only else []
        if not unsafe:
            raise LoadError(f"{what} does not load: {_cause(error)}") from error
        raise LoadError(
            f"{what} holds {', '.join(unsafe)}, which weights_only=True does not load: "
            "allow it on all ranks with torch.serialization.add_safe_globals, or give weights_only=False"
        ) from error


def check_stored(what: str, file: Any) -> None:
    """See that the archive `file` holds no more than its own bytes, so that no few bytes become gigabytes.

    Raises LoadError for what is no archive, is compressed, or has entries that lie in one another.
    """
    nbytes = file.seek(0, os.SEEK_END)
    _check_end(what, file, nbytes)
    try:
        entries = zipfile.ZipFile(file).infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise LoadError(f"{what} is no archive: {describe(error)}") from error
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size for entry in entries):
        raise LoadError(f"{what} is compressed, which torch.save never does")
    held = sum(entry.file_size for entry in entries)
    if held > nbytes:
        raise LoadError(f"{what} says that it holds {held} bytes, and has {nbytes}")


def _check_end(what: str, file: Any, nbytes: int) -> None:
    """See that the list of entries ends where its end is described.

    Then torch and zipfile read the same list, and no more of it than there is.
    """
    tail_bytes = min(nbytes, _TAIL_BYTES)
    file.seek(nbytes - tail_bytes)
    tail = file.read(tail_bytes)
    at = tail_bytes - _END.size
    if at < 0 or tail[at : at + 4] != _END_MAGIC:
        raise LoadError(f"{what} is no archive of torch.save ({nbytes} bytes)")
    *_, size, offset, comment = _END.unpack_from(tail, at)
    whole, end = comment == 0, nbytes - _END.size
    if tail[:at][-_LOCATOR.size :].startswith(_LOCATOR_MAGIC):
        end = nbytes - _TAIL_BYTES
        whole = whole and tail_bytes == _TAIL_BYTES and tail.startswith(_END_64_MAGIC)
        if whole:
            _, _, position, _ = _LOCATOR.unpack_from(tail, _END_64.size)
            *_, size, offset = _END_64.unpack_from(tail)
            whole = position == end
    if not whole or offset + size != end:
        raise LoadError(f"{what} is no archive of torch.save: its list of entries does not end where it should")


def _unsafe_types(file: Any) -> list[str]:
    try:
        if not isinstance(file, str):
            file.seek(0)
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file))
    except Exception:
        return []


def _cause(error: Exception) -> str:
    """The cause in one line, without torch's advice around it."""
    if isinstance(error, pickle.UnpicklingError):
        cause = str(error).partition(_CAUSE_AFTER)[2].partition(_CAUSE_BEFORE)[0]
        return describe(pickle.UnpicklingError(cause)) if cause else describe(error)
    return describe(error)
