"""A process group of ranks on one machine: small exchanges through a page of memory that they share.

For the few kilobytes of an agreement gloo's TCP pays mostly for waking its threads, and a connection per pair of ranks
costs each rank a system call per other rank. Here a rank writes its part into the page and sleeps; the last to come
wakes all.

Only `_allgather_base` exists, of equally many bytes from every rank. A member that hangs up or dies ends the others'
waiting.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from typing import Any

import torch.distributed as dist

from rankdrill.gathers.encoding.wire import bytes_of
from rankdrill.gathers.local.doorbell import Doorbell
from rankdrill.gathers.local.meeting import LineError, Meeting
from rankdrill.gathers.local.page import Page

__all__ = ["LocalGroup"]

_UNSET = datetime.timedelta(0)


class LocalGroup(dist.ProcessGroup):
    """The group itself; torch's tables, the ledger and faults treat it as any other."""

    def __init__(self, rank: int, meeting: Meeting, timeout_s: float) -> None:
        super().__init__(rank, len(meeting.addresses))  # type: ignore[call-arg]
        self._owner = 0
        page, doorbell = meeting.connect(rank, timeout_s)
        self.page: Page = page
        self.doorbell: Doorbell = doorbell
        self._owner = os.getpid()
        self.count = 0
        self.passed = 0
        self.names = ["", ""]

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        """What torch calls it."""
        return "rankdrill_local"

    # torch keeps a group's name and description in its backends, of which this one has none.
    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Take the name that torch gives."""
        self.names[0] = name

    def getGroupName(self) -> str:  # noqa: N802
        """The name."""
        return self.names[0]

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Take the description that torch gives."""
        self.names[1] = description

    def getGroupDesc(self) -> str:  # noqa: N802
        """The description."""
        return self.names[1]

    @property
    def connected(self) -> bool:
        """Whether this process still takes part; a child of one that does, does not."""
        return self._owner == os.getpid()

    def _allgather_base(self, output: Any, tensor: Any, opts: Any = None) -> dist.Work:
        """Every rank's tensor, one behind the other, on every rank. Returns a handle to wait for."""
        self.count += 1
        return Exchange(self, self.count, bytes_of(tensor), bytes_of(output), getattr(opts, "timeout", _UNSET))

    def abort(self) -> None:
        """Hang up: whoever waits for this rank waits no longer."""
        if not self._owner:
            return
        if self.connected:
            self.page.leave(self.passed + 1)
            self.doorbell.ring()
        self._owner = 0
        self.doorbell.close()
        self.page.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.abort()


class Exchange(dist.Work):
    """One allgather under way. It lays down this rank's part at once, and waits for the others in `wait`."""

    def __init__(
        self, group: LocalGroup, number: int, mine: memoryview, target: memoryview, timeout: datetime.timedelta
    ) -> None:
        super().__init__()
        self._group = group
        self._number = number
        self._nbytes = mine.nbytes
        self._target = target
        self._timeout = timeout
        self._passed = False
        self._failure = "" if group.connected else "this rank has hung up"
        if not self._failure and group.page.come(number, mine):
            self._conclude()

    def wait(self, timeout: datetime.timedelta = _UNSET) -> bool:
        """Wait until every rank's bytes are here. Raises LineError, naming ranks."""
        bound = (timeout or self._timeout).total_seconds()
        deadline = time.monotonic() + bound if bound > 0 else None
        while not self.is_completed():
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not self._group.doorbell.sleep(left) and not self.is_completed():
                raise LineError(f"ranks {self._group.page.absent(self._number)} of the channel did not come")
        if self._failure:
            raise LineError(self._failure)
        return True

    def is_completed(self) -> bool:
        """Whether it is over, well or not; takes what is there."""
        if self._passed or self._failure:
            return True
        page, number = self._group.page, self._number
        if page.is_complete(number):
            self._take()
        elif left := page.left(number):
            self._failure = f"rank {left[0]} of the channel hung up"
        elif page.all_came(number):
            self._conclude()  # whoever came last died before it did
        elif dead := self._group.doorbell.gone.intersection(page.absent(number)):
            self._failure = f"the process of rank {min(dead)} of the channel ended"
        return self._passed or bool(self._failure)

    def _conclude(self) -> None:
        """All have come. One that came and left since has given this exchange up: it cannot have our part."""
        page = self._group.page
        if not page.is_complete(self._number):  # another that came last may have been quicker
            if left := page.left(self._number):
                self._failure = f"rank {left[0]} of the channel hung up"
                return
            page.complete(self._number)
            self._group.doorbell.ring()
        self._take()

    def _take(self) -> None:
        page, number = self._group.page, self._number
        if page.take(number, self._nbytes, self._target):
            self._passed, self._group.passed = True, number
            return
        rank, nbytes = next((rank, given) for rank, given in enumerate(page.given(number)) if given != self._nbytes)
        self._failure = f"rank {rank} of the channel sent {nbytes} bytes in exchange {number}, not {self._nbytes}"
