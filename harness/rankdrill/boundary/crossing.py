"""The crossing: every call at a boundary becomes a step here, is written down, and may be struck."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from rankdrill.boundary.from_anybody import FromAnybody
from rankdrill.boundary.gate import Call, Gate, Proceed
from rankdrill.boundary.made_groups import MadeGroups
from rankdrill.boundary.numbering import Tally
from rankdrill.boundary.orders import Orders
from rankdrill.boundary.updates import FILE_PAUSES_S, Updates
from rankdrill.ledger import LedgerWriter, State
from rankdrill.step import SEND, Kind, Step

if TYPE_CHECKING:
    from rankdrill.boundary.handles import Handles

__all__ = ["Boundary", "Watch"]


class Watch(Protocol):
    """Compares what ranks are about to do. Told last, after all interceptors: of what the backend really is given."""

    def enter(self, group: int, ranks: Sequence[int], me: int, step: Step) -> None:
        """This rank, `me` of the group with that number and those global ranks, enters `step`; may raise."""

    def entrance(self, group: int, ranks: Sequence[int], me: int, step: Step) -> Callable[[int], None]:
        """What does as `enter` for `step` each time that it is made again, told which call of the group it is."""

    def retract(self, group: int, step: Step) -> None:
        """It did not: the backend, or a fault, refused."""

    def misread(self, step: Step, shown: str, strides: tuple[int, ...]) -> None:
        """The backend would misread a tensor of `step`, `shown` in short, for its `strides`; may raise."""

    def overwritten(self, step: Step, shown: str, parts: int) -> None:
        """One tensor of `step`, `shown` in short, is to be filled with that many ranks' parts; may raise."""

    def bend(self) -> None:
        """From here on it is the plan that sets ranks apart."""


class Met:
    """How often this rank has come, in this run, to each of the barriers of stores."""

    def __init__(self) -> None:
        self._run, self._times = 0, Counter[int]()

    def begin(self) -> int:
        """Another run begins, on all ranks, which may have barriers of the same names; gives its number, from 1."""
        self._run += 1
        self._times.clear()
        return self._run

    def come(self, place: int) -> tuple[int, int]:
        """What this barrier is known by among all that were in this process, and how often the rank was there."""
        times = self._times[place]
        self._times[place] += 1
        return (place + self._run) & 0xFFFFFFFFFFFFFFFF, times


class Boundary(Gate):
    """One rank's boundary: writes each crossing into the ledger and lets interceptors act on it.

    It is open only inside `recording()`; outside, and inside a crossing's own real call, every patched
    function behaves as if rankdrill were not there. `on_end` is told at any time which call is about to end the
    process, `on_handling` which collective is called while which exception is handled: in an ``except``, or a
    ``finally`` on the way out; `on_group` each process group that is made. One that only `looks_on` tries nothing
    out with the rank, and has it wait for nothing.
    """

    def __init__(
        self,
        ledger: LedgerWriter | None = None,
        watch: Watch | None = None,
        handles: Handles | None = None,
        on_end: Callable[[str], None] | None = None,
        on_handling: Callable[[Step, BaseException], None] | None = None,
        on_group: Callable[[Any], None] | None = None,
        *,
        looks_on: bool = False,
    ) -> None:
        super().__init__()
        self.stand_before(ledger, watch, handles, on_end, on_handling, on_group)
        self._handled = 0  # the last exception that was told of, by identity: to keep it would keep its frames
        # Each message adds to its sender's what it takes from its receiver's: over all ranks, 0 if all have met.
        self.messages = Tally()
        self.updates = Updates(()) if looks_on else Updates()
        self.file_updates = Updates(()) if looks_on else Updates(FILE_PAUSES_S)
        self.from_anybody = FromAnybody(0) if looks_on else FromAnybody()
        self.orders = Orders(self)
        self.on_device = False  # whether a group was used whose calls go on, on a device, after they have returned
        # To be told by which error a thread of the user's ends: Python's own hook may be the user's by then.
        self.on_ended_thread: Callable[[BaseException], None] | None = None
        self.handed_over = False  # whether, in this run, anything of the user's was handed to another thread
        self.made = MadeGroups()
        self.met = Met()
        self._groups: Counter[str] = Counter()

    def stand_before(
        self,
        ledger: LedgerWriter | None = None,
        watch: Watch | None = None,
        handles: Handles | None = None,
        on_end: Callable[[str], None] | None = None,
        on_handling: Callable[[Step, BaseException], None] | None = None,
        on_group: Callable[[Any], None] | None = None,
    ) -> None:
        """Have all these behind it, where nothing has crossed yet."""
        self.ledger, self.watch, self.handles = ledger, watch, handles
        self._on_end, self._on_handling, self._on_group = on_end, on_handling, on_group

    @property
    def undisturbed(self) -> bool:
        """Whether a call made now, on this thread, is only written down and watched: nobody else is to be told."""
        under_way = self.handles is not None and self.handles.under_way
        return not self.interceptors and not under_way and sys.exception() is None

    @property
    def may_be_copied(self) -> bool:
        """The same, but for what is being sent: whatever becomes of that, it changes nothing here."""
        under_way = self.handles.under_way.copy().values() if self.handles is not None else ()
        sending = all(handle.step.op == SEND for handle in under_way)
        return not self.interceptors and sending and sys.exception() is None

    def abandon(self) -> None:
        """Be no boundary any more: what a child process does, forked by the rank, are not the rank's steps."""
        if self.handles is not None:
            self.handles.rest()
        self.stand_before()
        self.interceptors, self.recorded = (), False

    def cross(self, step: Step, args: dict[str, Any], real: Proceed) -> Any:
        """Cross with a call that is over when it returns: record, strike, do the real thing, record."""
        __tracebackhide__ = True
        index, result = self.begin(step, args, real)
        self.mark(index, State.ENDED)
        return result

    def begin(self, step: Step, args: dict[str, Any], real: Proceed) -> tuple[int, Any]:
        """Cross with a call that may go on after it returns; whoever waits for it marks how far it got."""
        __tracebackhide__ = True
        inside, index = self.inside, -1
        inside.depth += 1
        try:
            if (handled := sys.exception()) is not None and step.kind is Kind.COLLECTIVE:
                self._tell_handled(step, handled)
            if self.ledger is not None:
                index = self.ledger.begin(step)
            chain = real
            if self.interceptors:
                for interceptor in reversed(self.interceptors):
                    chain = partial(interceptor, proceed=chain)
            return index, chain(Call(step, args, index))
        except BaseException as error:
            self.fail(index, error)
            raise
        finally:
            inside.depth -= 1

    def _tell_handled(self, step: Step, error: BaseException) -> None:
        if self._on_handling is not None and id(error) != self._handled:
            self._handled = id(error)
            self._on_handling(step, error)

    def note(self, step: Step) -> int:
        """Write down `step`, which the call that crosses now takes too; whoever takes it marks how far it got."""
        return self.ledger.begin(step) if self.ledger else -1

    @contextmanager
    def noted(self, indexes: Sequence[int]) -> Iterator[None]:
        """What was noted in `indexes` takes place here, and comes to the same end."""
        try:
            yield
        except BaseException as error:
            for index in indexes:
                self.fail(index, error)
            raise
        for index in indexes:
            self.mark(index, State.ENDED)

    def mark(self, index: int, state: State) -> None:
        """Note in the ledger how far the step got."""
        if self.ledger:
            self.ledger.mark(index, state)

    def be_patient(self, index: int, seconds: float) -> None:
        """Note in the ledger after how many seconds of waiting the rank gives up by itself; 0 is not known."""
        if self.ledger and seconds:
            self.ledger.be_patient(index, seconds)

    def wait(self, index: int, seconds: float) -> None:
        """Note in the ledger that the rank waits in the step, to give up after `seconds`; 0 is not known."""
        if self.ledger:
            self.ledger.wait(index, seconds)

    def fail(self, index: int, error: BaseException) -> None:
        """Note in the ledger that the step raised."""
        self._handled = id(error)  # of which the ledger tells
        if self.ledger:
            self.ledger.fail(index, error)

    def name_group(self, label: str, ranks: Sequence[int]) -> int:
        """A number for a new group that all its members give it, and that no group before it had.

        A group made again under its old name is another one, whose calls are counted anew.
        """
        name = f"{label} of {','.join(map(str, ranks))}"
        self._groups[name] += 1
        told = f"{name} #{self._groups[name]}".encode()
        return int.from_bytes(blake2b(told, digest_size=8).digest(), "little")

    def announce_end(self, call: str) -> None:
        """The process is about to end itself by `call`, ``os._exit`` say."""
        if self._on_end is not None:
            with self.closed():
                self._on_end(call)

    def announce_group(self, group: Any) -> None:
        """The process group `group` has been made."""
        if self._on_group is not None:
            with self.closed():
                self._on_group(group)

    def bend(self) -> None:
        """A planned fault is about to set this rank apart from the others."""
        if self.watch is not None:
            self.watch.bend()

    def struck(self, call: Call, fault: int) -> None:
        """Note in the ledger, before it strikes, that the plan's fault number `fault` strikes here."""
        if self.ledger:
            self.ledger.strike(call.record, fault)
