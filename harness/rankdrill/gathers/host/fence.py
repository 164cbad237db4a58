"""A full memory barrier, of which Python has none: what this process wrote before, others see before what it does next.

Processes that talk through shared memory need it once: each writes that it is there and then looks who else is. A
processor may do the look first, x86 too, and then of the last two neither sees the other. The kernel has such a barrier
in FUTEX_WAKE, before it looks for sleepers (`futex_hb_waiters_pending`), on every architecture; of none, it wakes none.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

__all__ = ["fence", "has_fence"]

# The number of the system call, by what `platform.machine` says of a process of 64 bits.
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "loongarch64": 98, "ppc64le": 221, "s390x": 238}
_FUTEX_WAKE_PRIVATE = 1 | 128
_number = _SYS_FUTEX.get(platform.machine(), -1) if sys.platform == "linux" and sys.maxsize > 1 << 32 else -1
_syscall = getattr(ctypes.CDLL(None), "syscall", None)
_word = ctypes.c_uint32(0)
_address = ctypes.byref(_word)


def fence() -> None:
    """The barrier, in half a microsecond; only where `has_fence`."""
    _syscall(_number, _address, _FUTEX_WAKE_PRIVATE, 0, None, None, 0)  # type: ignore[misc]


@functools.cache
def has_fence() -> bool:
    """Whether the number of the system call is known here, and the kernel does it."""
    if _syscall is None or _number < 0:
        return False
    return bool(_syscall(_number, _address, _FUTEX_WAKE_PRIVATE, 0, None, None, 0) == 0)
