"""Strikes at what files hold: torn, of an older generation, left over."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rankdrill.faults.paths import left_by, makes, reads
from rankdrill.faults.strike import Steps, Strike, When
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Call, Proceed

__all__ = ["LEFT_OVER", "MAX_REMEMBERED", "STRIKES"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

LEFT_OVER = b"left over from a run that crashed\n"
MAX_REMEMBERED = 1 << 28  # bytes of older generations; what does not fit is forgotten, the oldest first
_NAMING = frozenset({"rename", "replace"})
_WRITING = _NAMING | {"link", "write", "fsync"}


class Torn(Strike):
    name = "torn"
    does = "The file is cut to the first half of its bytes."
    seen = "A writer that was killed, a crash before the data reached the disk: half a file under its final name."
    on: ClassVar[Mapping[When, Steps]] = {
        When.BEFORE: {
            Kind.FILE: frozenset({"open", "stat", "lstat", "read"}),
            Kind.SHM: frozenset({"attach", "stat", "lstat", "read"}),
        },
        When.AFTER: {Kind.FILE: _WRITING, Kind.SHM: _WRITING},
    }

    def fits(self, call: Call) -> bool:
        if self.at is When.AFTER:
            return os.path.isfile(call.step.target)
        return reads(call) and os.stat(call.step.target).st_size > 0

    def act(self, call: Call) -> None:
        path = left_by(call)
        with contextlib.suppress(FileNotFoundError):  # another fault of the plan removed it
            os.truncate(path, os.stat(path).st_size // 2)


class Stale(Strike):
    name = "stale"
    does = (
        "At opening a file to read: it has the content this rank saw when it opened it last, or none if it never did. "
        "After a rename: what was there before is there again."
    )
    seen = "A cache of a network file system: the last call's file is read as this call's."
    on: ClassVar[Mapping[When, Steps]] = {When.AT: {Kind.FILE: frozenset({"open"})}, When.AFTER: {Kind.FILE: _NAMING}}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._remembered: dict[str, bytes] = {}

    def fits(self, call: Call) -> bool:
        if self.at is When.AT:
            return reads(call)
        before = left_by(call)
        if not os.path.isfile(call.step.target) or os.path.isdir(before):
            return False
        return not os.path.exists(before) or os.stat(before).st_size <= MAX_REMEMBERED

    def linger(self, call: Call, proceed: Proceed) -> Any:
        if self.at is When.AT and call.step.op == "open" and reads(call):
            self._remember(call.step.target)
        return proceed(call)

    def _remember(self, path: str) -> None:
        self._remembered.pop(path, None)
        self._remembered[path] = _content(path) or b""
        while sum(map(len, self._remembered.values())) > MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def strike(self, call: Call, proceed: Proceed) -> Any:
        if self.at is When.AT:
            return self._open(call, proceed, self._remembered.get(call.step.target, b""))
        path = left_by(call)
        before = _content(path)
        result = proceed(call)
        _put_back(path, before)
        return result

    def _open(self, call: Call, proceed: Proceed, content: bytes) -> Any:
        # Only this rank sees the old content: a file in memory, opened anew through its name in /proc.
        memory = os.memfd_create("rankdrill-stale")
        try:
            os.fchmod(memory, stat.S_IRUSR | stat.S_IWUSR)  # not 0777: who checks modes would refuse it for that
            with os.fdopen(os.dup(memory), "wb") as file:
                file.write(content)
            flags = call.args["flags"] & ~os.O_NOFOLLOW  # that name is a link
            return proceed(call.with_args(path=f"/proc/self/fd/{memory}", flags=flags, dir_fd=None))
        finally:
            os.close(memory)


class Collision(Strike):
    name = "collision"
    does = "What the step is to make exists already: a file or directory left over from a run that crashed."
    seen = "A fixed name, a shared directory, a second start of the job: `FileExistsError`, or another run's data."
    on: ClassVar[Mapping[When, Steps]] = {
        When.BEFORE: {
            Kind.FILE: frozenset({"open", "mkdir", "link"}),
            Kind.SHM: frozenset({"create", "mkdir", "link"}),
        }
    }

    def fits(self, call: Call) -> bool:
        if os.path.lexists(left_by(call)) or not os.path.isdir(os.path.dirname(left_by(call))):
            return False
        return makes(call) and not call.args.get("flags", 0) & os.O_TRUNC

    def act(self, call: Call) -> None:
        path = left_by(call)
        if call.step.op == "mkdir":
            os.mkdir(path, stat.S_IRWXU)
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
        try:
            os.write(fd, LEFT_OVER)
        finally:
            os.close(fd)


def _content(path: str) -> bytes | None:
    try:
        if os.stat(path).st_size > MAX_REMEMBERED:
            return None
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _put_back(path: str, content: bytes | None) -> None:
    if content is None:
        os.unlink(path)
        return
    aside = f"{path}.rankdrill-{os.getpid()}"
    with open(aside, "xb") as file:
        file.write(content)
    os.replace(aside, path)


STRIKES: tuple[type[Strike], ...] = (Torn, Stale, Collision)
