"""Copies of a rank, forked where it is: one waits, with nothing done yet, and is forked in turn for every order tried.

A copy has no connection to other ranks, nor to the controller: it is given what its rank was given. It ends with it.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from rankdrill.boundary.orders.kept import NOWHERE
from rankdrill.boundary.orders.script import Different, Script, different
from rankdrill.motion import COPY_NAME

__all__ = [
    "COPY_S",
    "MOST_WAITS",
    "Copy",
    "Part",
    "be_alone",
    "fork_alone",
    "fork_copy",
    "leave",
    "speaks",
    "stay_inside",
]

_exit = os._exit  # as it is before anybody stands around it, to save what was measured, say
COPY_S = 1.0  # of a processor for one to come to its end: what takes longer, or waits, stays unknown
MOST_WAITS = 10  # so often as long, where other processes keep it from computing
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OUTWARD = frozenset(
    {
        "os.exec", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.link", "os.mkdir", "os.posix_spawn",
        "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.system", "os.truncate", "signal.pthread_kill",
        "socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto", "sqlite3.connect", "subprocess.Popen",
    }
)  # fmt: skip
"""What Python audits that reaches beyond the process. A copy that gets there has come to no end."""


@dataclass
class Part:
    """What a copy goes through, and how it tells in what way that was different; nothing if it was not."""

    script: Script
    tell: Callable[[str], None]


class Copy:
    """The copy that waits, seen by its rank."""

    def __init__(self, pid: int, channel: Connection) -> None:
        self._pid = pid
        self._channel = channel
        self._tried = 0

    def try_(self, script: Script) -> None:
        """Have it go through `script`, and then through the same with other orders."""
        self._tried = 1 + sum(1 for _ in script.otherwise())
        with suppress(OSError):
            self._channel.send_bytes(pickle.dumps(script, pickle.HIGHEST_PROTOCOL))

    def differences(self) -> tuple[Different, ...]:
        """What was different in other orders, once this is known; nothing if nothing was, or nobody can say."""
        try:
            known = self._channel.poll((self._tried + 1) * MOST_WAITS * COPY_S)
            return tuple(pickle.loads(self._channel.recv_bytes())) if known else ()
        except (OSError, EOFError):
            return ()

    def end(self) -> None:
        """Be rid of it."""
        self._channel.close()
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def fork_copy() -> Copy | Part:
    """Returns in the rank, with its copy; and in each copy of that, with what it has to go through."""
    ours, theirs = Pipe()
    pid = fork_alone()
    if pid:
        theirs.close()
        with suppress(OSError):  # whichever of the two comes first
            os.setpgid(pid, pid)
        return Copy(pid, ours)
    try:
        ours.close()
        os.setpgid(0, 0)
        be_alone(theirs)
        part = _try_all(pickle.loads(theirs.recv_bytes()), theirs)
    except BaseException:  # its rank is gone, or did not need it
        part = None
    if part is None:
        leave()
    return part


def _try_all(script: Script, rank: Connection) -> Part | None:
    """In the copy that waits: nothing, once all is told. In those that do not wait their part."""
    differences: list[Different] = []
    for other in (script, *script.otherwise()):
        found = _try(other)
        if isinstance(found, Part):
            return found
        if other is script and found != "":
            break  # something is different each time, or takes too long
        if found:
            least = _least(script, other, found)
            if isinstance(least, Part):
                return least
            differences.append(least)
    rank.send_bytes(pickle.dumps(differences))
    return None


def _least(script: Script, other: Script, words: str) -> Different | Part:
    """What is different by as few changes of order as will do; in a copy its part."""
    while halves := script.halves(other):
        for half in halves:
            found = _try(half)
            if isinstance(found, Part):
                return found
            if found:
                other, words = half, found
                break
        else:
            break  # it takes both
    return different(words, script, other)


def _try(script: Script) -> Part | str | None:
    """What was different; None where the copy did not come to an end. In the copy its part."""
    heard, told = Pipe(duplex=False)
    pid = fork_alone()
    if not pid:
        heard.close()
        sys.addaudithook(stay_inside)
        return Part(script, lambda words: told.send_bytes(words.encode()))
    told.close()
    try:
        return heard.recv_bytes().decode() if speaks(heard, pid) else None
    except EOFError:
        return None
    finally:
        heard.close()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def speaks(heard: Connection, pid: int, seconds: float = COPY_S) -> bool:
    """Whether the copy `pid` says something; it is waited for while it computes, or would, for `seconds` in all."""
    for _ in range(MOST_WAITS):
        if heard.poll(seconds):
            return True
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *rest = file.read().rpartition(b")")[2].split()
        if state != b"R" or sum(map(int, rest[10:12])) * _TICK_S >= seconds:
            return False
    return False


def fork_alone() -> int:
    """Fork, in a process of threads; the copy ends with its parent. Returns as `os.fork`."""
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of other threads, which a copy has not: what waits for one of them stays unknown.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if not pid:
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_NAME, COPY_NAME.encode())
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            leave()
    return pid


def leave() -> NoReturn:
    """End this copy, and nothing else."""
    _exit(0)


def stay_inside(event: str, given: tuple[Any, ...]) -> None:
    """End the copy where it is about to do what others would see."""
    writes = event == "open" and isinstance(given[2], int) and given[2] & _WRITING
    if (writes and given[0] != NOWHERE) or event in _OUTWARD:
        leave()


def be_alone(channel: Connection) -> None:
    """Have nothing that is shared with the rank, but `channel`: whatever is written to anything else fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    kept = channel.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
