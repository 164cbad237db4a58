"""Puts a communicator whose calls are steps in the place of ``MPI.COMM_WORLD``.

mpi4py's classes are compiled and cannot be changed. They can be derived from, and a communicator of the derived class
is the same one to MPI. Communicators made from it are of that class too, but for those with a topology, whose calls are
no steps; nor are those of ``mpi4py.util.pkl5``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gate import Call
from rankdrill.boundary.mpi.communicator import Communicator, Communicators
from rankdrill.boundary.mpi.names import (
    BOTH,
    COLLECTIVES,
    MAKERS,
    MEMBERS_MAKE,
    PERSISTENT_SENDS,
    RECEIVES,
    SENDS,
    peer_place,
)
from rankdrill.ledger import State
from rankdrill.step import MPI_ABORT, Step

__all__ = ["install_mpi"]

_ANY_TAG = -1  # what is written where any will do
_EXIT_CODES = 0xFF
_Method = Callable[..., Any]


def install_mpi(boundary: Boundary, mpi: Any) -> None:
    """Make the calls on ``COMM_WORLD`` of the initialised module `mpi`, ``mpi4py.MPI``, steps of `boundary`."""
    known = Communicators(boundary, mpi)
    plain = mpi.Intracomm
    body: dict[str, Any] = {"__module__": plain.__module__, "__doc__": plain.__doc__}
    drilled = type(plain.__name__, (plain,), body)
    made = {
        **dict.fromkeys(COLLECTIVES, partial(_collective, known)),
        **dict.fromkeys(MAKERS, partial(_maker, known, drilled)),
        **dict.fromkeys(MEMBERS_MAKE, partial(_made_by_members, known, drilled)),
        **dict.fromkeys(SENDS | PERSISTENT_SENDS, partial(_send, known)),
        **dict.fromkeys(RECEIVES, partial(_receive, known)),
        **dict.fromkeys(BOTH, partial(_both, known)),
        "Free": partial(_end, known),
        "Disconnect": partial(_end, known),
        "Abort": partial(_abort, boundary),
    }
    for name, make in made.items():
        if hasattr(plain, name):  # an older mpi4py has fewer
            setattr(drilled, name, make(name, getattr(plain, name)))
    mpi.COMM_WORLD = drilled(mpi.COMM_WORLD)


def _collective(known: Communicators, name: str, original: _Method) -> _Method:
    boundary = known.boundary

    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        comm = known.of(self) if boundary.open else None
        if comm is None:
            return original(self, *args, **kwargs)
        comm.introduce()
        step = comm.collective(name, args, kwargs, known.operators)

        def real(crossing: Call) -> Any:
            __tracebackhide__ = True
            comm.enter(step)
            return original(self, *args, **kwargs)

        try:
            return boundary.cross(step, {}, real)
        except BaseException:
            comm.take_back(step)
            raise

    return call


def _maker(known: Communicators, drilled: type, name: str, original: _Method) -> _Method:
    return _drilling(known, drilled, name, _collective(known, name, original))


def _made_by_members(known: Communicators, drilled: type, name: str, original: _Method) -> _Method:
    return _drilling(known, drilled, name, original)


def _drilling(known: Communicators, drilled: type, name: str, make: _Method) -> _Method:
    """`make`, what it returns being one whose calls are steps, too."""

    @wraps(make)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        comm = make(self, *args, **kwargs)
        if comm == known.mpi.COMM_NULL:
            return comm  # this rank is no member
        with known.boundary.closed():
            known.make(comm, name)
        return comm if type(comm) is drilled else drilled(comm)

    return call


def _send(known: Communicators, name: str, original: _Method) -> _Method:
    place = peer_place(name)

    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        comm, peer = _met(known, self, args, kwargs, place, "dest")
        if comm is None or peer is None:
            return original(self, *args, **kwargs)
        tag = _whole_number(args[place + 1] if len(args) > place + 1 else kwargs.get("tag", 0))
        step = comm.send(name, peer, tag, again=name in PERSISTENT_SENDS)
        return _crossed(comm, step, peer, lambda: original(self, *args, **kwargs))

    return call


def _receive(known: Communicators, name: str, original: _Method) -> _Method:
    mpi, place = known.mpi, peer_place(name)

    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        comm, peer = _met(known, self, args, kwargs, place, "source", mpi.ANY_SOURCE)
        if comm is None or peer is None:
            return original(self, *args, **kwargs)
        tag = _whole_number(args[place + 1] if len(args) > place + 1 else kwargs.get("tag", mpi.ANY_TAG))
        anybody, blocks = peer == mpi.ANY_SOURCE, RECEIVES[name]
        step = comm.receive(name, None if anybody else peer, tag, blocks=blocks)
        if not (anybody and blocks):
            return _crossed(comm, step, peer, lambda: original(self, *args, **kwargs))
        given = args[place + 2] if len(args) > place + 2 else kwargs.get("status")
        status = mpi.Status() if given is None else given
        kept = {**kwargs, **({"status": status} if given is None else {})}
        args = args[: place + 2] if given is None else args
        return _crossed(comm, step, None, lambda: original(self, *args, **kept), lambda: status.Get_source())

    return call


def _both(known: Communicators, name: str, original: _Method) -> _Method:
    """A send, and a receive: the one has begun before the other waits."""
    boundary, mpi = known.boundary, known.mpi
    place, blocks = BOTH[name], not name.startswith("I")

    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        comm, to = _met(known, self, args, kwargs, 1, "dest")
        _, source = _met(known, self, args, kwargs, place, "source", mpi.ANY_SOURCE)
        if comm is not None and to is not None:
            boundary.mark(boundary.note(comm.send(name, to, _ANY_TAG)), State.ENDED)
        if comm is None or source is None:
            return original(self, *args, **kwargs)
        tag = _whole_number(args[place + 1] if len(args) > place + 1 else kwargs.get("recvtag", mpi.ANY_TAG))
        anybody = source == mpi.ANY_SOURCE
        step = comm.receive(name, None if anybody else source, tag, blocks=blocks and not anybody)
        if blocks and not anybody:
            return _crossed(comm, step, source, lambda: original(self, *args, **kwargs))
        boundary.mark(boundary.note(step), State.ENDED)
        return original(self, *args, **kwargs)

    return call


def _met(
    known: Communicators, of: Any, args: Any, kwargs: Any, place: int, name: str, default: Any = None
) -> tuple[Communicator | None, int | None]:
    """The communicator, None where this is no step; and the peer, None where there is none."""
    comm = known.of(of) if known.boundary.open else None
    peer = args[place] if len(args) > place else kwargs.get(name, default)
    if comm is None or not isinstance(peer, int) or peer == known.mpi.PROC_NULL:
        return comm, None
    comm.introduce()
    return comm, peer


def _whole_number(tag: Any) -> int:
    return tag if isinstance(tag, int) else _ANY_TAG  # what is none the real call refuses


def _crossed(
    comm: Communicator,
    step: Step,
    peer: int | None,
    original: Callable[[], Any],
    source: Callable[[], int] | None = None,
) -> Any:
    """Cross with the message `step`; `source` says whose it was where that is not known before."""
    __tracebackhide__ = True
    boundary = comm.boundary

    def real(crossing: Call) -> Any:
        __tracebackhide__ = True
        return original()

    try:
        record, result = boundary.begin(step, {}, real)
    except BaseException:
        if step.message is not None:
            comm.messages.give_back(step.op, peer, step.message)
        raise
    if source is not None:
        comm.arrived(record, source())
    boundary.mark(record, State.ENDED)
    return result


def _end(known: Communicators, name: str, original: _Method) -> _Method:
    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        known.forget(self)
        return original(self, *args, **kwargs)

    return call


def _abort(boundary: Boundary, name: str, original: _Method) -> _Method:
    @wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        boundary.announce_end(MPI_ABORT)
        code = args[0] if args else kwargs.get("errorcode", 0)
        original(self, *args, **kwargs)
        # MPICH tells the process manager, and comes back if that does not kill it at once.
        with boundary.closed():
            os._exit((code & _EXIT_CODES) or 1)

    return call
