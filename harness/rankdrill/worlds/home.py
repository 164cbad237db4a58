"""Where a user's runs keep their files: one directory below the temporary one, which nobody else can enter.

Its name is known, so anybody may have made it first. Then it is left alone, whoever made it and whatever is in it, and
another takes its place, under a name that nobody could know before it was there.
"""

from __future__ import annotations

import functools
import os
import pwd
import stat
import tempfile
import warnings
from pathlib import Path

from rankdrill.errors import UsageError

__all__ = ["home", "objection_to", "usual_home"]


def home() -> Path:
    """This user's directory for all runs, mode 0700: the usual one, or where that is not fit another of its own.

    Warns once of what is wrong with the usual one. Raises `UsageError` where there can be none at all.
    """
    usual = usual_home()
    try:
        usual.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:  # and no directory
        pass
    except OSError as error:
        raise UsageError(
            f"cannot make {usual}: {error.strerror}; set TMPDIR to a directory you can write to"
        ) from error
    objection = objection_to(usual)
    return _instead_of(usual, objection) if objection else usual


def usual_home() -> Path:
    """Where it is unless somebody else was there before."""
    return Path(tempfile.gettempdir()) / f"rankdrill-{os.getuid()}"


def objection_to(path: Path) -> str:
    """Why nobody's files may go to `path`, and whose it is; empty where nothing is wrong with it."""
    try:
        found = path.lstat()
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        kind = "a link" if stat.S_ISLNK(found.st_mode) else "no directory"
        return f"is {kind}, made by {_user(found.st_uid)}"
    if found.st_uid != os.getuid():
        return f"belongs to {_user(found.st_uid)}"
    # Not to be mended by another mode: what others have put there by now would stay.
    return f"is yours, but not private to you (mode {found.st_mode & 0o777:o})" if found.st_mode & 0o077 else ""


def _instead_of(usual: Path, objection: str) -> Path:
    """The directory that takes the place of `usual`: the same for later runs, as long as there is a need for it."""
    others = f"{usual.name}-instead-"
    # Anybody may make one of that name, and nobody but this user one of this user's.
    mine = next((path for path in sorted(usual.parent.glob(f"{others}*")) if not objection_to(path)), None)
    try:
        path = mine or Path(tempfile.mkdtemp(prefix=others, dir=usual.parent))
    except OSError as error:
        raise UsageError(
            f"{usual} {objection}, and no other can be made beside it: {error.strerror}; "
            "set TMPDIR to a directory you can write to"
        ) from error
    _tell(
        f"{usual} {objection}: ranks keep their files in {path}; have it removed, or set TMPDIR to a directory of yours"
    )
    return path


@functools.cache  # once in a process, whatever is done to the filters of warnings meanwhile
def _tell(text: str) -> None:
    warnings.warn(text, stacklevel=1)


def _user(number: int) -> str:
    try:
        return f"user {number} ({pwd.getpwuid(number).pw_name})"
    except KeyError:
        return f"user {number}"
