"""What a rank would call next, were the call over that it is about to make: a copy of it finds out, by going on.

Ranks that bring tensors to one call which do not fit may bring wrong ones, or the same ones in another order. What each
would bring next tells which. Nobody is on the other side of a copy: its calls are over at once, and change nothing, so
it is believed no further than that: a few calls, soon.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist

from rankdrill.boundary import torch_seam
from rankdrill.boundary.done import Done
from rankdrill.boundary.gate import Call, Proceed
from rankdrill.boundary.methods import METHODS
from rankdrill.boundary.orders.copies import be_alone, fork_alone, leave, speaks, stay_inside
from rankdrill.boundary.orders.recording import LOCAL
from rankdrill.boundary.orders.trial import shares_memory
from rankdrill.ledger import LedgerReader
from rankdrill.ledger.posts import Marks, marks_of
from rankdrill.site import Site, one_call
from rankdrill.step import NO_SEQUENCE, Kind

if TYPE_CHECKING:
    from rankdrill.boundary.crossing import Boundary

__all__ = ["Ahead"]

MOST_CALLS = 16
_SAVES = "save"  # to a file, which C++ opens
PATIENCE_S = 0.3  # of a processor, for all of them


class Ahead:
    """Looks ahead for one rank of `boundary`, which writes to `ledger`; what is shared within `own` is rankdrill's."""

    def __init__(self, boundary: Boundary, own: str, ledger: Path) -> None:
        self._boundary = boundary
        self._own = own
        self._ledger = ledger

    def before(self, group: str, site: Site) -> tuple[str, ...]:
        """What the rank has brought to the calls on that group that it made from the line of `site` so far."""
        records = LedgerReader(self._ledger).view().records
        made = [
            record.step for record in records if record.step.target == group and record.step.sequence != NO_SEQUENCE
        ]
        *_, begin = (0, *(at for at in range(1, len(made)) if made[at].sequence <= made[at - 1].sequence))
        here = [step for step in made[begin:] if step.site is not None and step.site.place == site.place]
        return tuple(step.fingerprint.partition(" ")[0] for step in here[:-1])

    def __call__(self, group: str, site: Site) -> tuple[Marks, ...] | None:
        """The marks of the calls on the group of that name that would follow upon the one that is about to be made, by
        the line of `site` too, and called as it was, as far as that is known.

        Returns in the copy, too, with None: it is to go on as if the call were right.
        """
        ledger = self._boundary.ledger
        on_gpu: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        alone = threading.current_thread() is threading.main_thread() and not on_gpu
        if not alone or self._boundary.interceptors or shares_memory(self._own):
            return ()
        heard, told = Pipe(duplex=False)
        try:
            pid = fork_alone()
        except BaseException:
            heard.close()
            told.close()
            raise
        if pid:
            told.close()
            return _found_out(heard, pid)
        try:
            heard.close()
            be_alone(told)
            if ledger is not None:
                ledger.let_go()
            self._boundary.orders.be_a_copy(_Ending())
            self._boundary.stand_in(_Alone(group, site, told))
            _touch_nothing()
            _pretend()
        except BaseException:
            leave()
        return None


def _found_out(heard: Connection, pid: int) -> tuple[Marks, ...]:
    try:
        return tuple(_heard(heard, pid))
    finally:
        heard.close()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # somebody waits for all children
            os.waitpid(pid, 0)


def _heard(channel: Connection, pid: int) -> Iterator[Marks]:
    for _ in range(MOST_CALLS):
        if not speaks(channel, pid, PATIENCE_S):
            return
        try:
            yield pickle.loads(channel.recv_bytes())
        except EOFError:
            return


def _touch_nothing() -> None:
    """End the copy where it is about to do what others would see, as far as Python, and the kernel, can tell."""
    sys.addaudithook(stay_inside)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # what C++ writes to files Python does not see


def _pretend() -> None:
    """Have the call that is about to be made be over at once. All others are not made: see `_Alone`."""
    torch_seam.keeps_work()  # is found out by a call, once
    calls = count()

    def pretended(self: Any, *args: Any, **kwargs: Any) -> dist.Work:
        if next(calls):
            leave()
        return Done(())  # torch 2.6 waits for whatever a group returns

    for method in METHODS:
        if hasattr(dist.ProcessGroup, method):
            setattr(dist.ProcessGroup, method, pretended)


class _Alone:
    """Takes all calls of the copy: those on `group` are over at once, and told if they are of the line of `site`; any
    other ends it.
    """

    def __init__(self, group: str, site: Site, told: Connection) -> None:
        self._group = group
        self._site = site
        self._told = told
        self._left = count(2 * MOST_CALLS, -1)

    def __call__(self, call: Call, proceed: Proceed) -> Any:
        step = call.step
        if step.kind in LOCAL and step.op != _SAVES:
            return proceed(call)
        if step.kind is not Kind.COLLECTIVE or step.message is not None or not next(self._left):
            leave()
        if step.target == self._group and step.contract is not None and one_call(step.site, self._site):
            self._told.send_bytes(pickle.dumps(marks_of(step.contract)))
        return Done(())


class _Ending:
    """Where the body ends the copy does."""

    def over(self, value: Any, error: BaseException | None) -> NoReturn:
        leave()

    def end(self, difference: str) -> NoReturn:
        leave()
