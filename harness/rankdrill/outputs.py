"""Files that somebody asks for by an option: refused at the start where they cannot be, and written whole."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from rankdrill.errors import UsageError

__all__ = ["check_output", "write_whole"]

_NO_PLACE_FOR_FILES = (("/", "dev"), ("/", "proc"))  # what is there leads to what somebody has open


def check_output(option: str, name: str) -> Path:
    """The file `name` that `option` asks for; raises `UsageError` where it could not be written."""
    path = Path(name).absolute()  # whatever the current directory is by then
    if path.is_dir():
        raise UsageError(f"{option} {name}: is a directory; give a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {name}: there is no directory {Path(name).parent}; make it first")
    needed = [path] if path.exists() else []
    needed += [path.parent] if _may_be_replaced(path) else []
    if not all(os.access(there, os.W_OK) for there in needed):
        raise UsageError(f"{option} {name}: cannot be written; give a file in a directory of yours")
    return path


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` aside, then give it its name: nobody finds half a file there. Raises `OSError`.

    Not where `path` is a pipe or a device, such as ``/dev/stdout``. What UTF-8 does not have, such as half a character
    of a file's name, is written as JSON and Python escape it.
    """
    data = text.encode("utf-8", "backslashreplace")
    if not _may_be_replaced(path):
        path.write_bytes(data)
        return
    path = path.resolve()  # a link to it stays one
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _may_be_replaced(path: Path) -> bool:
    return path.parts[:2] not in _NO_PLACE_FOR_FILES and (path.is_file() or not path.exists())
