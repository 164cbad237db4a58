"""Making a TCPStore becomes a step: its server waits until all have connected, and these until it is there.

What torch makes for a process group is the making of that group; only what the user makes is told,
or has torch make by ``rendezvous`` or ``create_c10d_store``.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from types import CodeType
from typing import Any

from rankdrill.boundary.callsites import call_site, owner_of
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gate import Call
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.store_names import TCP, tcp_name
from rankdrill.step import INIT_GROUP, JOINS_STORE, Kind, Meeting, Site, Step
from rankdrill.whose import Whose

__all__ = ["joining_patches"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

# Of torch's own, what makes a store that somebody has asked for.
_ASKED_FOR = (
    os.path.join("distributed", "rendezvous.py"),
    os.path.join("distributed", "elastic", "utils", "distributed.py"),
)


def joining_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes the making of a TCPStore a step of `boundary`."""
    yield Patch(TCP, "__init__", functools.partial(_joining, boundary))


def _joining(boundary: Boundary, original: Any) -> Callable[..., None]:
    @functools.wraps(original)
    def made(store: Any, *args: Any, **kwargs: Any) -> None:
        asked = None
        if boundary.open and _is_the_users(sys._getframe(1).f_code):
            with suppress(TypeError, AttributeError):  # what torch refuses
                asked = _asked(*args, **kwargs)
        if asked is None:
            original(store, *args, **kwargs)
            return
        step, patience = asked
        if step is None:  # which port it has is known now
            original(store, *args, **kwargs)
            boundary.cross(_step(store.host, store.port, Meeting.SERVER, 0, call_site()), {}, lambda _call: None)
            return

        def real(call: Call) -> None:
            boundary.be_patient(call.record, patience)
            original(store, *args, **kwargs)

        boundary.cross(step, {}, real)

    return made


def _is_the_users(code: CodeType) -> bool:
    owner = owner_of(code)
    return owner in (Whose.USER, Whose.LIBRARY) or (owner is Whose.TORCH and code.co_filename.endswith(_ASKED_FOR))


def _asked(
    host_name: str,
    port: int,
    world_size: int | None = None,
    is_master: bool = False,
    timeout: timedelta = timedelta(seconds=300),
    wait_for_workers: bool = True,
    *_: Any,
    **__: Any,
) -> tuple[Step | None, float] | None:
    """The step, and after how many seconds it gives up; None where a group is made, or nobody could find the store.

    No step, either, where the system is to choose the port: whoever comes is told it when it is there.
    """
    site = call_site()
    if (site is not None and site.via == INIT_GROUP) or not (port or is_master):
        return None
    wanted = world_size if wait_for_workers and world_size and world_size > 0 else 0
    role = Meeting.SERVER if is_master else Meeting.CLIENT
    return _step(host_name, port, role, wanted, site) if port else None, timeout.total_seconds()


def _step(host: str, port: int, role: str, wanted: int, site: Site | None) -> Step:
    name = tcp_name(host, port)
    meeting, place = Meeting(role, wanted, name.told), name.told.removeprefix(f"{JOINS_STORE} ")
    return Step(Kind.STORE, JOINS_STORE, place, str(meeting), site=site, digest=name.key("").digest)
