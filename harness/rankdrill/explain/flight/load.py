"""One dump, as bytes, to plain data: a pickle or JSON; whatever else it is, one clear error."""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
from pathlib import Path
from typing import Any, NoReturn

from rankdrill.errors import DumpError
from rankdrill.explain.flight.opcodes import vet
from rankdrill.explain.flight.plain import build

__all__ = ["MOST_BYTES", "load", "read_bytes"]

MOST_BYTES = 128 << 20  # of one dump: those of 2 000 entries have less than one MiB
_AHEAD = 1 << 17


class _Nothing(pickle.Unpickler):
    """The second lock behind `vet`."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise DumpError("imports; that is not read")

    def persistent_load(self, pid: object) -> NoReturn:
        raise DumpError("reaches outside of itself; that is not read")


def read_bytes(path: Path) -> bytes:
    """The file's content; raises `DumpError` if it is no ordinary file, too large, or not to be had."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
        with open(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise DumpError("is no ordinary file")
            if status.st_size > MOST_BYTES:
                raise DumpError(f"has {status.st_size >> 20} MiB; of a dump at most {MOST_BYTES >> 20} are read")
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DumpError(f"cannot be read: {error.strerror}") from error


def load(raw: bytes) -> dict[str, Any]:
    """The dump in `raw`, whose values may be of any plain type; raises `DumpError`."""
    if not raw:
        raise DumpError("is empty")
    data = _from_pickle(raw) if raw[:1] == b"\x80" else _from_json(raw)
    if type(data) is not dict or not ({"entries", "pg_config", "pg_status"} & data.keys()):
        raise DumpError("is no dump of a flight recorder: it has neither entries nor groups")
    return data


def _from_pickle(raw: bytes) -> Any:
    if not vet(raw):
        return build(raw)
    try:
        # The unpickler reads ahead where it can peek, which takes a third of the time.
        return _Nothing(io.BufferedReader(io.BytesIO(raw), _AHEAD)).load()
    except DumpError:
        raise
    except Exception as error:  # of many kinds, for opcodes that are plain and make no sense together
        raise DumpError(f"is damaged: {type(error).__name__} in its pickle") from error


def _from_json(raw: bytes) -> Any:
    if raw.lstrip()[:1] != b"{":
        raise DumpError("is no dump of a flight recorder: neither a pickle nor JSON")
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise DumpError("is nested too deep") from error
    except ValueError as error:  # UnicodeDecodeError is one, too
        where = f" at byte {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise DumpError(f"is damaged, or cut off: it is no JSON{where}") from error
