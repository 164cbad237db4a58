"""Directories that gathers make: nobody but this user may enter them."""

from __future__ import annotations

import os

__all__ = ["make_private"]

_MODE = 0o700


def make_private(path: str) -> None:
    """Make the directory `path`, and those above it that are missing, of mode 0700; what is there stays as it is.

    Raises OSError.
    """
    # Not `os.makedirs`: its mode is for the last one only, those above get what the umask leaves.
    above = os.path.dirname(path)
    if above and not os.path.exists(above):
        make_private(above)
    try:
        os.mkdir(path, _MODE)
    except FileExistsError:
        # A network file system may not show yet what another rank has just made.
        if os.path.lexists(path) and not os.path.isdir(path):
            raise
    except OSError:
        # Also of one that is there on a read-only file system, or in somebody else's directory.
        if not os.path.isdir(path):
            raise
