"""Takes a part of the machine away from this thread alone for a while, as a container may lack it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["hidden"]

_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 0x40000, 2


@contextmanager
def hidden(place: str, when: bool, options: str = "") -> Iterator[bool]:
    """Put an empty file system over `place`, if `when`; False where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not when:
        yield True
        return
    alone = libc.unshare(_CLONE_NEWNS) == 0 and libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
    mounted = alone and libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, options.encode()) == 0
    try:
        yield mounted
    finally:
        if mounted:
            assert libc.umount2(os.fsencode(place), _MNT_DETACH) == 0
