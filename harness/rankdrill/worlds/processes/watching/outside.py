"""Whether somebody besides the ranks may set a key or give up a lock: then nobody knows whether a wait for it ends."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Timer, get_ident
from types import FrameType

from rankdrill.diagnosis.stores.keys import stores_of
from rankdrill.motion import COPY_NAME
from rankdrill.step import OWN_STORE, Step
from rankdrill.whose import whose_file

__all__ = ["another_thread_may_act", "has_children", "others_may_act"]

_INSTALLED = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")})
_ASYNCIO = f"{os.sep}asyncio{os.sep}"
_TCP = "TCPStore "
_LISTENS = "0A"  # the state of a socket, in /proc/net/tcp
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def others_may_act(awaited: Iterable[Step], pids: Collection[int]) -> bool:
    """Whether what ranks, the processes `pids`, wait for in the steps `awaited` may come from elsewhere.

    From a child of theirs, whose calls no ledger holds; from another thread of this process; or from whoever else
    uses a store that none of the ranks serves.
    """
    if any(has_children(pid) for pid in pids):
        return True
    stores = stores_of(awaited) - {OWN_STORE}
    if not stores:
        return False
    ports = {int(store.rpartition(":")[2]) for store in stores if store.startswith(_TCP)}
    return another_thread_may_act() or not ports <= set(_served(ports, pids))


def another_thread_may_act() -> bool:
    """Whether this process has a thread of which nothing says that it is at a library's own work, as pytest-xdist's."""
    return any(not _is_a_librarys(frame) for own, frame in sys._current_frames().items() if own != get_ident())


def _is_a_librarys(innermost: FrameType) -> bool:
    codes = [frame.f_code for frame, _ in traceback.walk_stack(innermost)]
    # What these call, and when, the user has said, who has no frame there until then.
    if any(code is Timer.run.__code__ or _ASYNCIO in code.co_filename for code in codes):
        return False
    files = [code.co_filename for code in codes]
    return any(file.startswith(_INSTALLED) for file in files) and all(whose_file(file) for file in files)


def has_children(pid: int) -> bool:
    """Whether the process `pid` has any, that have not been waited for; not counting copies of it, which act alone."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            if any(not _is_a_copy(child) for child in path.read_text().split()):
                return True
    return False


def _is_a_copy(pid: str) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == COPY_NAME
    return False


def _served(ports: Collection[int], pids: Collection[int]) -> Iterator[int]:
    """Those of `ports` at which one of the processes `pids` listens."""
    if not ports:
        return
    sockets = {link for pid in pids for link in _sockets(pid)}
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                port = int(fields[1].rpartition(":")[2], 16)
                if fields[3] == _LISTENS and port in ports and f"socket:[{fields[9]}]" in sockets:
                    yield port


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                yield os.readlink(f"/proc/{pid}/fd/{fd}")
