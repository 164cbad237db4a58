"""Whose code a file holds: the user's own, a library's, torch's or rankdrill's. Imports none of them."""

from __future__ import annotations

import os
import sysconfig
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path

__all__ = ["OUR_FOLDER", "Whose", "is_of_python", "torch_folder", "whose_file"]


class Whose(IntEnum):
    """Whose code it is."""

    USER = 0
    LIBRARY = 1
    TORCH = 2
    OURS = 3


def _folder(path: str | os.PathLike[str]) -> str:
    return os.path.join(os.path.realpath(path), "")


OUR_FOLDER = Path(__file__).parent
"""Where rankdrill lies."""
_OURS = _folder(OUR_FOLDER)
_PACKAGES, _PYTHONS = (
    tuple({_folder(path) for name, path in sysconfig.get_paths().items() if name in names})
    for names in (("purelib", "platlib"), ("stdlib",))
)
_SITE_PACKAGES = f"{os.sep}site-packages{os.sep}"


@cache
def torch_folder() -> str:
    """Where torch lies, with a slash at the end; it need not be installed in ``site-packages``."""
    spec = find_spec("torch")
    assert spec is not None, "rankdrill depends on torch"
    assert spec.origin is not None
    return _folder(Path(spec.origin).parent)


def whose_file(file: str) -> Whose:
    """Whose code `file` holds, a path as code objects name it."""
    if file.startswith(torch_folder()):
        return Whose.TORCH
    if file.startswith(_OURS):
        return Whose.OURS
    if file.startswith(("<frozen", *_PACKAGES, *_PYTHONS)) or _SITE_PACKAGES in file:
        return Whose.LIBRARY
    return Whose.USER


def is_of_python(file: str) -> bool:
    """Whether it is of the standard library."""
    return file.startswith(("<frozen", *_PYTHONS)) and not file.startswith(_PACKAGES) and _SITE_PACKAGES not in file
