"""Strikes at memory: a real limit on the address space."""

from __future__ import annotations

import resource
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rankdrill.faults.steps import OPS
from rankdrill.faults.strike import Argument, Steps, Strike, When

if TYPE_CHECKING:
    from rankdrill.boundary import Call

__all__ = ["STRIKES", "address_space"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

MAX_BYTES = 2**50


class Limit(Strike):
    name = "limit"
    does = "From this step on the process gets at most that much more address space (RLIMIT_AS)."
    seen = (
        "A `ulimit -v` or a container's limit that is too tight: MemoryError from Python, "
        "`RuntimeError: ... DefaultCPUAllocator` from torch, threads that cannot start."
    )
    on: ClassVar[Mapping[When, Steps]] = {When.BEFORE: OPS}
    arguments = (Argument("bytes", int, 0, MAX_BYTES, "bytes"),)

    def act(self, call: Call) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = address_space() + int(self.values[0])
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # Lifted with the run: its interceptors are let go of when it is over, and this strike with them.
        weakref.finalize(self, resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def address_space() -> int:
    """Bytes of address space that this process uses, as RLIMIT_AS counts them."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    return pages * resource.getpagesize()


STRIKES: tuple[type[Strike], ...] = (Limit,)
