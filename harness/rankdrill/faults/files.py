"""Strikes at files and shared memory that make a call fail: nothing there, no room, no permission, a broken disk."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rankdrill.faults.paths import left_by, looks, makes
from rankdrill.faults.steps import FILE_OPS, SHM_OPS
from rankdrill.faults.strike import Steps, Strike, When, at
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Call, Proceed

__all__ = ["STRIKES", "failure"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

_LOOKING = frozenset({"stat", "lstat", "listdir", "scandir", "unlink", "rmdir", "rename", "replace", "link"})
_MAKING = frozenset({"write", "fsync", "rename", "replace", "link", "mkdir"})
_NAMED = _LOOKING | {"mkdir"}
_GROWING = frozenset({"write", "fsync", "mkdir", "rename", "replace", "link", "posix_fallocate"})


class Missing(Strike):
    name = "missing"
    does = "At a step: this call does not find the file. After a step that makes one: it is removed."
    seen = "A cleaner of temporary files, another job, a directory on one node only: `FileNotFoundError`."
    on: ClassVar[Mapping[When, Steps]] = {
        When.AT: {Kind.FILE: _LOOKING | {"open"}, Kind.SHM: _LOOKING | {"attach"}},
        When.AFTER: {Kind.FILE: _MAKING | {"open"}, Kind.SHM: _MAKING | {"create"}},
    }

    def fits(self, call: Call) -> bool:
        if self.at is When.AT:
            return looks(call)
        moved = call.step.target if "dst" in call.args else ""
        return makes(call) and not (os.path.isdir(moved) and os.listdir(moved))  # only an empty directory can go

    def strike(self, call: Call, proceed: Proceed) -> Any:
        if self.at is When.AT:
            raise failure(errno.ENOENT, call)
        return super().strike(call, proceed)

    def act(self, call: Call) -> None:
        path = left_by(call)
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)


class Full(Strike):
    name = "full"
    does = "The call fails with ENOSPC; of a write, the first half is written."
    seen = "A full disk, quota or /dev/shm: `OSError: No space left on device`, and a torn file."
    on = at({Kind.FILE: _GROWING | {"open"}, Kind.SHM: _GROWING | {"create"}})

    def fits(self, call: Call) -> bool:
        return makes(call)

    def strike(self, call: Call, proceed: Proceed) -> Any:
        if call.step.op == "write":
            data = memoryview(call.args["data"]).cast("B")
            if data.nbytes > 1:
                proceed(call.with_args(data=data[: data.nbytes // 2]))
        raise failure(errno.ENOSPC, call)


class IoError(Strike):
    name = "io_error"
    does = "The call fails with EIO."
    seen = "A broken disk, a network file system that lost its server: `OSError: Input/output error`."
    on = at({Kind.FILE: FILE_OPS, Kind.SHM: SHM_OPS})

    def strike(self, call: Call, proceed: Proceed) -> Any:
        raise failure(errno.EIO, call)


class Denied(Strike):
    name = "denied"
    does = "The call fails with EACCES."
    seen = "A directory of another user, a squashed root, a read-only export: `PermissionError`."
    on = at({Kind.FILE: _NAMED | {"open"}, Kind.SHM: _NAMED | {"create", "attach"}})

    def strike(self, call: Call, proceed: Proceed) -> Any:
        raise failure(errno.EACCES, call)


def failure(number: int, call: Call) -> OSError:
    """The error that the real call would raise with this errno."""
    names = [call.step.target, None, call.args["dst"]] if "dst" in call.args else [call.step.target]
    return OSError(number, os.strerror(number), *names)


STRIKES: tuple[type[Strike], ...] = (Missing, Full, IoError, Denied)
