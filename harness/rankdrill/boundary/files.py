"""Files become steps: `open` and the functions of `os` that name or use one."""

from __future__ import annotations

import builtins
import fcntl
import functools
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gate import Call
from rankdrill.boundary.opened import compose, content_digest, flags_of, is_plain
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.territory import Territory
from rankdrill.step import FILE_LOCKS, REPLACING, Kind, Step

__all__ = ["FD_FUNCTIONS", "PAIR_FUNCTIONS", "PATH_FUNCTIONS", "file_patches"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

# Function of `os` -> op. `remove` is `unlink` by another name.
PATH_FUNCTIONS = {
    "listdir": "listdir",
    "lstat": "lstat",
    "mkdir": "mkdir",
    "remove": "unlink",
    "rmdir": "rmdir",
    "scandir": "scandir",
    "stat": "stat",
    "unlink": "unlink",
}
PAIR_FUNCTIONS = {"link": "link", "rename": "rename", "replace": "replace"}
FD_FUNCTIONS = {
    "fsync": "fsync",
    "ftruncate": "ftruncate",
    "posix_fallocate": "posix_fallocate",
    "read": "read",
    "write": "write",
}
_HERE_BY_DEFAULT = ("listdir", "scandir")
_TOLD_WITH_LINE = ("mkdir", "rmdir", "unlink", "stat")  # who looks whether a file is there may then write it
# Sets in which `os` keeps functions; shutil and others ask whether a function is in them.
_CAPABILITIES = ("supports_dir_fd", "supports_fd", "supports_follow_symlinks", "supports_effective_ids")
_READ_WRITE_CREATE = {os.O_CREAT: "O_CREAT", os.O_EXCL: "O_EXCL", os.O_TRUNC: "O_TRUNC", os.O_APPEND: "O_APPEND"}
_LOCKS = {fcntl.LOCK_EX: "LOCK_EX", fcntl.LOCK_SH: "LOCK_SH", fcntl.LOCK_UN: "LOCK_UN", fcntl.LOCK_NB: "LOCK_NB"}
_ACCESS = ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE")


def file_patches(boundary: Boundary, territory: Territory) -> Iterator[Patch]:
    """What makes files steps of `boundary`."""
    opening = _opening(boundary, territory)
    yield Patch(builtins, "open", opening)
    yield Patch(io, "open", opening)
    yield Patch(os, "open", _os_opening(boundary, territory))
    for name, op in PATH_FUNCTIONS.items():
        yield Patch(os, name, _naming(op, boundary, territory))
    for name, op in PAIR_FUNCTIONS.items():
        yield Patch(os, name, _pairing(op, boundary, territory))
    for name, op in FD_FUNCTIONS.items():
        yield Patch(os, name, _using(op, boundary, territory))
    for op in sorted(FILE_LOCKS):
        yield Patch(fcntl, op, _locking(op, boundary, territory))
    yield Patch(os.path, "realpath", _unseen(boundary))
    for name in _CAPABILITIES:
        yield Patch(os, name, _with_replacements)


def _opening(boundary: Boundary, territory: Territory) -> Callable[[Any], Any]:
    @functools.cache  # builtins.open and io.open are one function, and stay one
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def open(
            file: Any,
            mode: Any = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            if not boundary.open or not is_plain(mode, buffering, encoding, errors, newline):
                return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
            text = encoding, errors, newline
            if isinstance(file, int) or opener is not None:
                # Opened before, or by `os.open` within: this is no step, what is done with the file is.
                raw, opened = compose(file, mode, buffering, text, closefd, opener)
                used = territory.locate(raw.fileno()) or ""
                raw.watch(boundary, territory.kind(used) if used else None, used)
                return opened
            path = territory.locate(file)
            kind = territory.kind(path) if path is not None else None
            if kind is None or path is None:
                return original(file, mode, buffering, encoding, errors, newline, closefd)

            def real(call: Call) -> Any:
                raw, opened = compose(call.args["path"], mode, buffering, text, closefd)
                raw.watch(boundary, kind, path)
                return opened

            flags = flags_of(mode)
            args = {"path": file, "flags": flags, "dir_fd": None}
            step = Step(kind, _open_op(kind, flags), path, mode, site=call_site(), digest=_path_digest(path))
            with _updating(boundary, step, flags):
                return boundary.cross(step, args, real)

        return open

    return make


def _os_opening(boundary: Boundary, territory: Territory) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
            located = territory.locate(path, dir_fd) if boundary.open else None
            kind = territory.kind(located) if located is not None else None
            if kind is None or located is None:
                return original(path, flags, mode, dir_fd=dir_fd)
            names, digest = _flag_names(flags), _path_digest(located)
            step = Step(kind, _open_op(kind, flags), located, names, site=call_site(), digest=digest)
            args = {"path": path, "flags": flags, "dir_fd": dir_fd}
            with _updating(boundary, step, flags):
                return boundary.cross(
                    step,
                    args,
                    lambda call: original(call.args["path"], call.args["flags"], mode, dir_fd=call.args["dir_fd"]),
                )

        return open

    return make


@contextmanager
def _updating(boundary: Boundary, step: Step, flags: int) -> Iterator[None]:
    """A file is opened, to be read or to be written anew."""
    if flags & os.O_TRUNC:
        boundary.file_updates.about_to_set(step.digest)
    yield
    if flags & os.O_ACCMODE == os.O_RDONLY and step.kind is Kind.FILE:
        boundary.file_updates.got(step.digest)


def _path_digest(path: str) -> int:
    """What tells a path from all others, however long."""
    return int.from_bytes(blake2b(path.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def _naming(op: str, boundary: Boundary, territory: Territory) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def named(*args: Any, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(*args, **kwargs)
            given = args[0] if args else kwargs.get("path")
            if given is None and op in _HERE_BY_DEFAULT:
                given = "."
            # A descriptor is no name: `os.stat(fd)` and `os.listdir(fd)` look at what is open.
            path = territory.locate(given, kwargs.get("dir_fd"))
            kind = territory.kind(path) if path is not None and not isinstance(given, int) else None
            if kind is None or path is None:
                return original(*args, **kwargs)
            site = call_site() if op in _TOLD_WITH_LINE else None
            step = Step(kind, op, path, site=site, digest=_path_digest(path) if op == "stat" else 0)
            try:
                return boundary.cross(step, {"path": path}, lambda call: original(*args, **kwargs))
            except FileNotFoundError:
                if op == "stat" and kind is Kind.FILE:
                    boundary.file_updates.got(step.digest)
                raise

        return named

    return make


def _pairing(op: str, boundary: Boundary, territory: Territory) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def paired(src: Any, dst: Any, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(src, dst, **kwargs)
            source = territory.locate(src, kwargs.get("src_dir_fd"))
            target = territory.locate(dst, kwargs.get("dst_dir_fd"))
            kind = territory.kind(source) if source is not None else None
            if kind is None or source is None or target is None:
                return original(src, dst, **kwargs)
            # The ledger cuts long paths; within one directory the name says all.
            shown = os.path.basename(target) if os.path.dirname(target) == os.path.dirname(source) else target
            step = Step(kind, op, source, f"to {shown}", site=call_site(), digest=_path_digest(target))
            if op in REPLACING:
                boundary.file_updates.about_to_set(step.digest)
            return boundary.cross(step, {"path": source, "dst": target}, lambda call: original(src, dst, **kwargs))

        return paired

    return make


def _using(op: str, boundary: Boundary, territory: Territory) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def used(fd: Any, *args: Any) -> Any:
            if not boundary.open:
                return original(fd, *args)
            number = fd if isinstance(fd, int) else getattr(fd, "fileno", lambda: None)()
            path = territory.locate(number)
            kind = territory.kind(path) if path is not None else None
            if kind is None or path is None:
                return original(fd, *args)
            if op == "write":
                data = args[0]
                step = Step(kind, op, path, nbytes=memoryview(data).nbytes, digest=content_digest(data))
                return boundary.cross(step, {"fd": fd, "data": data}, lambda call: original(fd, call.args["data"]))
            step = Step(kind, op, path, nbytes=args[0] if op == "read" else 0)
            return boundary.cross(step, {"fd": fd}, lambda call: original(fd, *args))

        return used

    return make


def _locking(op: str, boundary: Boundary, territory: Territory) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def lock(fd: Any, command: Any, *args: Any) -> Any:
            if not boundary.open or not isinstance(command, int):
                return original(fd, command, *args)
            path = territory.locate(fd if isinstance(fd, int) else getattr(fd, "fileno", lambda: None)())
            kind = territory.kind_of_lock(path) if path is not None else None
            if kind is None or path is None:
                return original(fd, command, *args)
            names = "|".join(name for flag, name in _LOCKS.items() if command & flag)
            step = Step(kind, op, path, names, site=call_site())
            return boundary.cross(step, {"fd": fd}, lambda call: original(fd, command, *args))

        return lock

    return make


def _unseen(boundary: Boundary) -> Callable[[Any], Any]:
    # It calls `lstat` for every part of a path: not what a reader of the ledger looks for, nor what a plan strikes.
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def realpath(*args: Any, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(*args, **kwargs)
            with boundary.closed():
                return original(*args, **kwargs)

        return realpath

    return make


def _with_replacements(functions: set[Any]) -> set[Any]:
    patched = [getattr(os, name) for name in ("open", *PATH_FUNCTIONS, *PAIR_FUNCTIONS, *FD_FUNCTIONS)]
    return functions | {each for each in patched if getattr(each, "__wrapped__", None) in functions}


def _open_op(kind: Kind, flags: int) -> str:
    if kind is Kind.FILE:
        return "open"
    return "create" if flags & os.O_CREAT else "attach"


def _flag_names(flags: int) -> str:
    names = [_ACCESS[flags & os.O_ACCMODE], *(name for flag, name in _READ_WRITE_CREATE.items() if flags & flag)]
    return "|".join(names)
