"""Strikes at when a file can be seen: later than it was made, as on a network file system."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rankdrill.faults.files import failure
from rankdrill.faults.paths import looks
from rankdrill.faults.strike import Argument, Strike, at
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Call, Proceed

__all__ = ["STRIKES"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

MAX_SECONDS = 3600.0
_NAMING = frozenset({"rename", "replace", "link"})
_LOOKING = frozenset({"stat", "lstat"})
_FINDING = _LOOKING | {"open", "attach"}
_LISTING = frozenset({"listdir", "scandir"})


class Late(Strike):
    name = "late"
    does = (
        "At looking for a file: for that long this rank does not see it, listings included. "
        "At a rename: it returns at once, and takes effect for everybody that much later."
    )
    seen = "The attribute cache of NFS: a file is there on one node, `FileNotFoundError` on another for seconds."
    on = at({Kind.FILE: _NAMING | _LOOKING | {"open"}, Kind.SHM: _NAMING | _LOOKING | {"attach"}})
    arguments = (Argument("seconds", float, 0.0, MAX_SECONDS, "seconds"),)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._hidden: dict[str, float] = {}

    def fits(self, call: Call) -> bool:
        return looks(call)

    def strike(self, call: Call, proceed: Proceed) -> Any:
        if call.step.op in _NAMING:
            threading.Thread(target=self._later, args=(call, proceed), daemon=True, name="rankdrill-late").start()
            return None
        self._hidden[call.step.target] = time.monotonic() + self.values[0]
        raise failure(errno.ENOENT, call)

    def linger(self, call: Call, proceed: Proceed) -> Any:
        if not self._hidden:
            return proceed(call)
        if call.step.op in _LISTING:
            return self._listing(call, proceed)
        looked_for = call.step.kind in (Kind.FILE, Kind.SHM) and call.step.op in _FINDING and looks(call)
        if looked_for and self._hides(call.step.target):
            raise failure(errno.ENOENT, call)
        return proceed(call)

    def _hides(self, path: str) -> bool:
        return time.monotonic() < self._hidden.get(path, 0.0)

    def _listing(self, call: Call, proceed: Proceed) -> Any:
        found = proceed(call)
        if call.step.op == "listdir":
            return [name for name in found if not self._hides(os.path.join(call.step.target, os.fsdecode(name)))]
        return _Entries(found, lambda entry: self._hides(os.path.join(call.step.target, os.fsdecode(entry.name))))

    def _later(self, call: Call, proceed: Proceed) -> None:
        time.sleep(self.values[0])
        # Whatever was to be renamed may be gone by now; nobody waits for the answer.
        with self.boundary.closed(), contextlib.suppress(OSError):
            proceed(call)


class _Entries:
    """An `os.scandir` that leaves entries out."""

    def __init__(self, inner: Any, hides: Any) -> None:
        self._inner = inner
        self._hides = hides

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:  # ends with the directory
            entry = next(self._inner)
            if not self._hides(entry):
                return entry

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


STRIKES: tuple[type[Strike], ...] = (Late,)
