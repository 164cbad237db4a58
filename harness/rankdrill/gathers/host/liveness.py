"""Whether a process of this machine is still there: which rank has certainly died, and whose leftovers may go."""

from __future__ import annotations

import functools
import os
import time
import zlib
from dataclasses import dataclass

__all__ = ["NO_IDENTITY", "Identity", "has_gone", "identify", "is_gone"]

# Fields of /proc/PID/stat after the command's closing parenthesis.
_STATE, _START_TIME = 0, 19


@dataclass(frozen=True)
class Identity:
    """One process of one boot of one machine; `machine` tells process-id namespaces apart, as containers have them."""

    machine: int
    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.machine:08x}-{self.pid}-{self.started}"

    @staticmethod
    def parse(text: str) -> Identity | None:
        """The identity that `str` wrote, or None for anything else."""
        parts = text.split("-")
        try:
            return Identity(int(parts[0], 16), int(parts[1]), int(parts[2])) if len(parts) == 3 else None
        except ValueError:
            return None


NO_IDENTITY = Identity(0, 0, 0)


def identify() -> Identity:
    """This process. Where /proc cannot be read the machine is 0, about which nothing is ever certain."""
    return _identity_of(os.getpid())  # by number, for a child has another


@functools.lru_cache(maxsize=1)
def _identity_of(pid: int) -> Identity:
    try:
        started = int(_stat(pid)[_START_TIME])
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        machine = zlib.crc32(f"{boot}/{os.readlink('/proc/self/ns/pid')}".encode())
    except (OSError, IndexError):
        return Identity(0, pid, 0)
    return Identity(machine, pid, started)


def is_gone(identity: Identity, me: Identity) -> bool:
    """Whether that process has certainly ended; False where it is on another machine. `me` is `identify()`."""
    if not identity.machine or identity.machine != me.machine:
        return False
    try:
        stat = _stat(identity.pid)
    except OSError:
        return not _answers(identity.pid)
    return bool(stat) and (int(stat[_START_TIME]) != identity.started or stat[_STATE] in ("Z", "X"))


def has_gone(identity: Identity, me: Identity) -> bool:
    """As `is_gone`, as it was within the last quarter of a second: for looking at many again and again."""
    return _was_gone(identity, me, int(time.monotonic() * 4))


@functools.lru_cache(maxsize=256)
def _was_gone(identity: Identity, me: Identity, when: int) -> bool:
    return is_gone(identity, me)


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
