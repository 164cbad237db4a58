"""The life of a rank once it is up: one job after another, each where its controller is now."""

from __future__ import annotations

import os
import pickle
import runpy
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import process
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from rankdrill.boundary.callsites import raise_site
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.torch_seam import groups as groups_now
from rankdrill.diagnosis import LeftGroups, Unwaited, unwaited
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.errors import UsageError
from rankdrill.whose import OUR_FOLDER
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job, Place, dump, dump_error, load
from rankdrill.worlds.plain import Plain
from rankdrill.worlds.processes.forked import end_if_forked
from rankdrill.worlds.processes.messages import Account, Raised, Report, Returned
from rankdrill.worlds.processes.rendezvous import Rendezvous
from rankdrill.worlds.processes.state import Condition
from rankdrill.worlds.processes.streams import reopen_streams
from rankdrill.worlds.processes.wire import recv_frame, send_frame

__all__ = ["Jobs", "raised"]

# What runs a body, or a script (`launch/script.py`).
_BELOW_THE_BODY = (__file__, str(OUR_FOLDER / "launch" / "script.py"), runpy.__spec__.origin, "<frozen runpy>")


class Jobs:
    """Takes jobs from the controller's socket and answers each, also from within the body of one."""

    context: RankContext  # which in turn can pause here

    def __init__(self, sock: socket.socket, rendezvous: Rendezvous, variables: dict[str, str]) -> None:
        self._sock = sock
        self._rendezvous = rendezvous
        self._variables = variables
        self._pid = os.getpid()
        self._place: Place | None = None
        self._coming: Place | None = None  # told in the middle of a body: for the next one

    def serve(self, context: RankContext) -> None:
        """Run jobs until the controller hangs up: then `EOFError` or `ConnectionError`."""
        self.context, self._store = context, context.store
        while True:
            place, raw = self._receive()
            self._answer(self._run(place, raw), over=True)

    def pause(self, value: Any) -> Job:
        """See `RankContext.pause`."""
        context = self.context
        self._end_if_forked(value if isinstance(value, BaseException) else None)
        with context.boundary.closed():
            self._answer(raised(value) if isinstance(value, BaseException) else Returned(self._dump(value)))
            place, raw = self._receive()
            self._coming = place or self._coming
            job: Job = load(raw)
        context.boundary.strike_with(self._arm(job))
        context.boundary.made.begin_part()
        if job.counts_anew and isinstance(context.group, DrilledGroup):
            context.group.count_anew()
        return job

    def _receive(self) -> tuple[Place | None, bytes]:
        place, raw = pickle.loads(recv_frame(self._sock))
        return place, raw

    def _answer(self, result: Returned | Raised, *, over: bool = False) -> None:
        context = self.context
        context.boundary.orders.leave()
        context.notes.extend(self._rendezvous.notes)
        self._rendezvous.notes.clear()
        collectives, groups = self._issued()
        account = Account(
            collectives,
            groups,
            self._unwaited(),
            self._left_groups(),
            context.boundary.messages.total if over else None,
            context.boundary.updates.take() + context.boundary.file_updates.take() if over else 0,
            self._taken() if over or context.boundary.orders.found else (),
            context.boundary.handed_over,
            context.boundary.on_device,
            any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()),
        )
        if over:
            context.boundary.handed_over = False
        notes = tuple(dict.fromkeys(context.notes))
        report = Report(result, time.monotonic_ns(), tuple(context.left), notes, account)
        context.notes.clear()
        send_frame(self._sock, pickle.dumps(report, pickle.HIGHEST_PROTOCOL))

    def _run(self, place: Place | None, raw: bytes) -> Returned | Raised:
        try:
            self._rendezvous.begin()
            reopen_streams()
            place, self._coming = place or self._coming, None
            if place is not None:
                self._go_to(place)
            job: Job = load(raw)
            if job.keeps_state:
                return self._body(job)
            with self._restored():
                return self._body(job)
        except BaseException as error:
            return raised(error)

    def _body(self, job: Job) -> Returned | Raised:
        context = self.context
        context.boundary.made.begin_part()
        if job.begins:
            run = context.boundary.met.begin()
            context.store = PrefixStore(f"run-{run}", self._store)  # with nothing in it
            if isinstance(context.group, DrilledGroup):
                context.group.count_anew()
        given = (context, *job.args) if job.with_context else job.args
        orders = context.boundary.orders
        orders.begin(context.world_size, str(context.directory), watched=context.boundary.watch is not None)
        try:
            with context.boundary.recording(self._arm(job)):
                value = job.body(*given, **job.kwargs)
                self._end_if_forked(None)
                orders.over(value)
            result: Returned | Raised = Returned(self._dump(value))
        except BaseException as error:
            self._end_if_forked(error)
            orders.over(error=error)
            result = raised(error)
        if job.ends:
            context.boundary.made.expect()
        handles = context.boundary.handles
        if handles is not None:
            handles.rest()
            if job.ends:
                handles.expect()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the body's doing: closed, or replaced by something else
                stream.flush()
        return result

    def _end_if_forked(self, error: BaseException | None) -> None:
        if not self.context.boundary.orders.in_copy:
            end_if_forked(self._pid, error)

    def _arm(self, job: Job) -> list[Any]:
        context = self.context
        assert context.boundary.ledger is not None
        context.boundary.ledger.forget_strikes()
        if job.plan is None:
            return []
        from rankdrill.faults import arm

        return arm(job.plan, context.index, context.boundary)

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """Leave the process as it was for the next body, or say what cannot be put back."""
        with warnings.catch_warnings():
            condition = Condition()
            try:
                yield
            finally:
                self.context.left.extend((*condition.restore(), *condition.held()))

    def _go_to(self, place: Place) -> None:
        """Follow the controller: take over what has changed there since the last time, and only that.

        What a fixture of a module or session has set on this rank stays.
        """
        last, self._place = self._place, place
        self.context.moves += 1
        if last is None or place.sys_path != last.sys_path:
            sys.path[:] = place.sys_path
        if last is None or place.cwd != last.cwd:
            os.chdir(place.cwd)
            vars(process)["ORIGINAL_DIR"] = place.cwd  # where spawned children look for a script without a folder
        if last is None:
            os.environ.clear()
            os.environ.update(place.environ | self._variables)
        elif place.environ != last.environ:
            for name in last.environ.keys() - place.environ.keys() - self._variables.keys():
                os.environ.pop(name, None)
            for name, value in place.environ.items():
                if last.environ.get(name) != value and name not in self._variables:
                    os.environ[name] = value

    def _dump(self, value: Any) -> bytes:
        try:
            return dump(value, by_reference=isinstance(value, Plain))
        except Exception as error:
            kind = type(value).__qualname__
            raise UsageError(
                f"rank {self.context.index} returned a {kind} that cannot be pickled ({error}); "
                "return plain data instead"
            ) from error

    def _unwaited(self) -> tuple[Unwaited, ...]:
        handles = self.context.boundary.handles
        return unwaited(handles.take_unwaited()) if handles is not None else ()

    def _taken(self) -> tuple[Taken, ...]:
        boundary = self.context.boundary
        return tuple(Taken(*each) for each in boundary.from_anybody.take(boundary.orders.take()))

    def _left_groups(self) -> tuple[LeftGroups, ...]:
        groups = (group for group in groups_now() if isinstance(group, DrilledGroup))
        return tuple(LeftGroups(*each) for each in self.context.boundary.made.take_left(groups))

    def _issued(self) -> tuple[int, int]:
        """How many collectives on the default group, and how many groups made from it."""
        group = dist.group.WORLD if dist.is_initialized() else None
        if group is not self.context.group:
            return -1, -1  # the body destroyed the group, or made one; what is there now is not ours
        if not isinstance(group, DrilledGroup):
            return 0, 0
        return group.sequence.upcoming, group.groups_made.upcoming


def raised(error: BaseException) -> Raised:
    """What `error` is to the controller."""
    text = "".join(traceback.format_exception(_without_own_frames(error)))
    try:
        message = str(error)
    except Exception as broken:
        message = f"<its message raises {type(broken).__name__}>"
    return Raised(dump_error(error), text, type(error).__qualname__, message, raise_site(error.__traceback__))


def _without_own_frames(error: BaseException) -> BaseException:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in _BELOW_THE_BODY:
        frames = frames.tb_next
    return error.with_traceback(frames)
