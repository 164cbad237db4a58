"""The file of a checkpoint: a plain archive of `torch.save`, put in place whole or not at all.

`torch.load(path)` shows a dict: `format`, `version`, `id`, `world_size`, `shared_state`, and `local_states`, one uint8
tensor per rank that is such an archive itself. So opening a checkpoint never unpickles what a rank's state is made of.

A draft is written beside the final name and renamed over it. Its name carries the process that writes it: a later save
in the same directory removes the drafts of processes that have ended.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import torch

from rankdrill.gathers.encoding import archives
from rankdrill.gathers.host import leftovers
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.storage.directories import make_private
from rankdrill.gathers.storage.files import WrongContentError

__all__ = ["Draft", "Saved", "pack", "read", "unpack"]

FORMAT, VERSION = "rankdrill checkpoint", 1
PREFIX, SUFFIX = ".rankdrill-checkpoint-", ".part"
_ID_BYTES = 8

# So long what another rank, or this one, has renamed may stay out of sight, as on NFS.
VISIBLE_S = 1.0
_PAUSE_S = 0.02


@dataclass(frozen=True)
class Saved:
    """A checkpoint as it lies in its file: `packed` is what `pack` made, by group rank."""

    id: str
    shared_state: Any
    packed: Sequence[torch.Tensor]


def pack(state: Any, weights_only: bool) -> torch.Tensor:
    """`state` as `torch.save` writes it, in a uint8 tensor. Raises LoadError for what could not be loaded again."""
    return torch.frombuffer(archives.pack("local_state", state, weights_only), dtype=torch.uint8)


def unpack(saved: Saved, rank: int, weights_only: bool, map_location: Any) -> Any:
    """The state that one rank packed. Raises LoadError."""
    array: Any = saved.packed[rank].cpu().numpy()
    what, file = f"local_state of rank {rank}", io.BytesIO(array)
    if weights_only:
        archives.check_stored(what, file)
    return archives.load(what, file, map_location, weights_only)


class Draft:
    """A checkpoint that is not in place yet; `path` is absolute. A method that raises has removed it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._directory = os.path.dirname(path)
        self._aside: str | None = None

    def write(self, shared_state: Any, packed: Sequence[torch.Tensor], weights_only: bool) -> None:
        """Write it aside, down to the disk. Raises OSError, LoadError, and what pickling `shared_state` raises."""
        make_private(self._directory)
        leftovers.sweep(self._directory, PREFIX, stat.S_ISREG, os.unlink, SUFFIX)
        aside = os.path.join(self._directory, f"{PREFIX}{identify()}-{secrets.token_hex(16)}{SUFFIX}")
        with self._or_nothing(), open(aside, "xb", opener=_private) as file:
            self._aside = aside
            _save(
                {
                    "format": FORMAT,
                    "version": VERSION,
                    "id": secrets.token_hex(_ID_BYTES),
                    "world_size": len(packed),
                    "shared_state": shared_state,
                    "local_states": list(packed),
                },
                file,
            )
            os.fsync(file.fileno())
            # Mapped, so that no tensor is read: what is tried is whether it opens, and what it is made of.
            archives.load("shared_state", aside, "cpu", weights_only, mmap=True)

    def publish(self) -> None:
        """Give it its name, in place of the former one; durable when this returns. Raises OSError."""
        assert self._aside is not None
        with self._or_nothing():
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._rename(self._aside)
                self._aside = None
                _sync(directory)
            finally:
                os.close(directory)

    def _rename(self, aside: str) -> None:
        wanted = os.stat(aside)
        os.replace(aside, self._path)
        until = time.monotonic() + VISIBLE_S
        while not _is_same(self._path, wanted):
            if time.monotonic() >= until:
                raise OSError(errno.EIO, "is not there after it was renamed", self._path)
            time.sleep(_PAUSE_S)

    def discard(self) -> None:
        """Remove what was not put in place, if anything; what cannot be removed is left to a later save."""
        if self._aside is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._aside)
            self._aside = None

    @contextlib.contextmanager
    def _or_nothing(self) -> Iterator[None]:
        """The others hear of an error after this: then there is nothing left to see."""
        try:
            yield
        except BaseException:
            self.discard()
            raise


def read(path: str, weights_only: bool, map_location: Any) -> Saved:
    """The checkpoint at `path`. Raises OSError (also for a file that is none, or not ours), LoadError.

    Bears for `VISIBLE_S` seconds with a file that is not there yet, as on NFS.
    """
    until = time.monotonic() + VISIBLE_S
    while not os.path.lexists(path) and time.monotonic() < until:
        time.sleep(_PAUSE_S)
    with open(path, "rb", opener=_without_waiting) as file:
        _check_owner(os.fstat(file.fileno()), weights_only)
        _check_whole(file)
        content = archives.load("shared_state", file, map_location, weights_only)
    return _saved(content)


def _saved(content: Any) -> Saved:
    """What was loaded, if it is what `Draft.write` saves. It may be of anybody's making: nothing of it is printed."""
    written = content.get("format") if isinstance(content, dict) else None
    if not (isinstance(written, str) and written == FORMAT):
        raise WrongContentError("not written by gather_and_save_checkpoint; torch.load opens it")
    version, world_size, packed = (content.get(part) for part in ("version", "world_size", "local_states"))
    if isinstance(version, int) and version != VERSION:
        raise WrongContentError(f"has version {version} of the format, this rankdrill reads {VERSION}")
    fits = {
        "version": isinstance(version, int),
        "id": isinstance(content.get("id"), str),
        "shared_state": "shared_state" in content,
        "local_states": isinstance(packed, list) and len(packed) > 0 and all(map(_is_packed, packed)),
        "world_size": isinstance(world_size, int) and isinstance(packed, list) and world_size == len(packed),
    }
    wrong = next((part for part, well in fits.items() if not well), None)
    if wrong is not None:
        raise WrongContentError(f"is a checkpoint whose parts do not fit together: {wrong} is not what was saved")
    return Saved(content["id"], content["shared_state"], content["local_states"])


def _is_packed(one: Any) -> bool:
    """Whether it may be what `pack` made. One byte that is repeated says that it is gigabytes; it is not contiguous."""
    return isinstance(one, torch.Tensor) and one.dtype is torch.uint8 and one.dim() == 1 and one.is_contiguous()


def _save(content: dict[str, Any], file: IO[bytes]) -> None:
    try:
        torch.save(content, file)
        file.flush()
    except Exception as error:
        hidden = error.__context__
        if isinstance(hidden, OSError):  # torch 2.13 says of a full disk: unexpected pos 226 vs 0
            raise hidden from None
        raise
    found = os.fstat(file.fileno()).st_size
    if found != file.tell():
        raise OSError(errno.EIO, f"has {found} of {file.tell()} bytes after writing")


def _is_same(path: str, wanted: os.stat_result) -> bool:
    """Whether that file is at `path`, by its number or, where a file system makes numbers up, by time and size."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    alike = (found.st_mtime_ns, found.st_size) == (wanted.st_mtime_ns, wanted.st_size)
    return alike or found.st_ino == wanted.st_ino


def _check_owner(status: os.stat_result, weights_only: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise WrongContentError("not a file")
    if status.st_uid != os.geteuid():
        raise WrongContentError(
            f"belongs to user {status.st_uid}, and this process to user {os.geteuid()}; "
            "what others wrote is not loaded: if you trust them, load a copy of your own"
        )
    if status.st_mode & stat.S_IWOTH:
        raise WrongContentError("can be written by everybody, so it may hold anything; if it does not: chmod o-w")
    # What an access list allows to anybody is in the bits of the group too.
    if status.st_mode & stat.S_IWGRP and not weights_only:
        raise WrongContentError(
            f"can be written by its group ({status.st_gid}), and weights_only=False runs what others put in it; "
            "if nobody did: chmod g-w, or load it with weights_only=True"
        )


def _check_whole(file: IO[bytes]) -> None:
    """Every record must be there with its checksum.

    torch looks at no checksum, and falls for the end of an archive inside the archive (torch 2.13). Reading 1 GiB takes
    this check 0.9 s and torch 5 s.
    """
    damage = _damage(file)
    if damage:
        raise WrongContentError(
            f"torn or damaged, or no checkpoint ({file.seek(0, os.SEEK_END)} bytes): {damage}; load another: "
            "a save never leaves half of one under its final name"
        )
    file.seek(0)


def _damage(file: IO[bytes]) -> str:
    """What is wrong with it, if anything is; no name or text of its own is told."""
    try:
        archives.check_stored("the file", file)  # or few bytes might be gigabytes to check
        archive = zipfile.ZipFile(file)
        entries = archive.infolist()
        if not entries or entries[0].header_offset != 0:
            return "the archive does not begin where the file does"
        return "a checksum is of something else" if archive.testzip() is not None else ""
    except archives.LoadError as error:
        return str(error)
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError):
        # RuntimeError of an entry that is said to be encrypted, EOFError of one that is said to end behind the file.
        return "an entry of the archive is not what it is said to be"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer


def _sync(directory: int) -> None:
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing, as some network ones
            raise
