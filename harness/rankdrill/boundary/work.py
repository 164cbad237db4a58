"""The handle of a call under way, which tells the ledger when somebody waits for it and when it is over."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.handles import Handle
from rankdrill.boundary.reducers import WaitsAtTheEnd
from rankdrill.ledger import State

__all__ = ["NO_TIMEOUT", "NeverWaited", "TrackedWork"]

NO_TIMEOUT = datetime.timedelta(0)
"""What torch takes for the group's own timeout."""


class NeverWaited(Exception):  # noqa: N818 (it stands in the ledger, and is never raised)
    """The handle of a message was dropped before anybody had waited."""


class TrackedWork(dist.Work):
    """The handle of a collective under way; notes in the ledger when somebody waits and when it is over."""

    def __init__(
        self,
        inner: Any,
        boundary: Boundary,
        record: int,
        patience: float,
        arrived: Callable[[int], None] | None = None,
        at_the_end: WaitsAtTheEnd | None = None,
        *,
        sends: bool = False,
    ) -> None:
        super().__init__()
        self.inner = inner
        self._sends = sends  # what is sent changes nothing here, however long it takes
        self._at_the_end = at_the_end  # to be told when its future is asked for
        self._arrived = arrived  # to be told the sender of what was received, once it is known
        self._boundary = boundary
        self._record = record
        self._patience = patience
        self._over = False
        self.handle: Handle | None = None  # where the user holds it
        boundary.mark(record, State.ISSUED)

    def wait(self, timeout: datetime.timedelta = NO_TIMEOUT) -> bool:
        """Wait for the collective, `timeout` 0 meaning the group's own."""
        __tracebackhide__ = True  # so that pytest ends its traceback in the code under test
        self._settle()
        if self._boundary.orders.in_copy and self._is_over_in_a_copy():
            return True
        if not self._over:
            self._boundary.wait(self._record, self._patience_within(timeout))
        try:
            done = self.inner.wait(timeout) if timeout else self.inner.wait()
            self._tell_source()
        except BaseException as error:
            self._boundary.fail(self._record, error)
            raise
        self._boundary.mark(self._record, State.ENDED)
        return bool(done)

    def _is_over_in_a_copy(self) -> bool:
        """Of a call that its rank had issued before: what that brings besides nobody in a copy can know."""
        if not self._sends and not self.inner.is_completed():
            self._boundary.orders.leave()
        return self._sends

    def wait_on(self, seconds: float, patience: float) -> bool:
        """Wait for `seconds` of the `patience` that the caller has; whether it is over, and not whether it is well."""
        self._settle()
        if not self._over:
            self._boundary.wait(self._record, patience)
        with contextlib.suppress(Exception):  # which `wait` will raise, and tell
            self.inner.wait(datetime.timedelta(seconds=seconds))
        return self.is_completed()

    def _patience_within(self, timeout: datetime.timedelta) -> float:
        asked = timeout.total_seconds() if timeout else 0.0
        return min(self._patience or asked, asked or self._patience)

    def is_completed(self) -> bool:
        """Whether it is over, without waiting."""
        done = bool(self.inner.is_completed())
        if done and not self._over:
            self._over = True
            self._tell_source()
            self._boundary.mark(self._record, State.ENDED)
            self._settle()
        return done

    def _tell_source(self) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is None:
            return
        try:
            source = self._source_rank()
        except RuntimeError:  # a fault put another handle in its place, which has none
            return
        arrived(source)

    def begin_waiting(self) -> None:
        """Somebody waits for it from here on, without asking here."""
        if not self.is_completed():
            self._boundary.wait(self._record, self._patience)

    def stop_waiting(self) -> None:
        """Nobody does any more."""
        if not self.is_completed():
            self._boundary.mark(self._record, State.ISSUED)

    def settle(self) -> None:
        """Somebody has another handle to wait for it by."""
        self._settle()

    def is_success(self) -> bool:
        return bool(self.inner.is_success())

    def exception(self) -> Any:
        return self.inner.exception()

    def result(self) -> Any:
        found = self.inner.result()  # refused before it is completed
        self._settle()
        return found

    def get_future(self) -> Any:
        future = self.inner.get_future()
        self._settle()
        if self._at_the_end is not None and self._boundary.ledger:
            self._at_the_end.expect(self)
        return future

    def getFuture(self) -> Any:  # noqa: N802 (torch's name)
        return self.get_future()

    def synchronize(self) -> None:
        self._settle()
        self.inner.synchronize()

    def source_rank(self) -> int:
        return int(self.inner.source_rank())

    def _source_rank(self) -> int:
        return int(self.inner._source_rank())

    def _settle(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.settle()
