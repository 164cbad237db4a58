"""In a rank: a watchdog is started, if its host has none for the directory; the first of its ranks does so.

Who has the lock on ``HOST-NUMBER.watchdog`` is the watchdog. The rank that gets it hands it on, so that there is never
a second one, and it is given back by whatever end the watchdog comes to.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import subprocess
import sys
import zlib
from pathlib import Path

from rankdrill.host import boot_id, pid_namespace

__all__ = ["LOCK", "is_replaced", "name_of_host", "open_lock", "start_watchdog", "take"]

LOCK = ".watchdog"
START_S = 30.0  # for an interpreter that imports nothing to fork itself: a busy machine takes its time
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")
_AWAY = """
import os, sys
if not os.fork():
    os.execv(sys.executable, [sys.executable, "-P", "-m", "rankdrill.watchdog", *sys.argv[1:]])
"""
"""Its parent is nobody of the job's: whoever waits for its own children does not find it among them."""


def start_watchdog(directory: Path) -> str:
    """Have the processes of this host that are recorded in `directory` watched; returns why not, if they cannot be."""
    try:
        lock = open_lock(directory)
    except OSError as error:
        return f"{error.strerror or error}"
    try:
        return _start(directory, lock) if take(lock) else ""
    except (OSError, subprocess.SubprocessError) as error:
        return f"{getattr(error, 'strerror', None) or error}"
    finally:
        os.close(lock)


def name_of_host() -> str:
    """What its watchdog's files begin with: containers of one machine may share its name, and see no others."""
    host = _UNSAFE.sub("_", socket.gethostname())[:64] or "host"
    return f"{host}-{zlib.crc32(f'{boot_id()} {pid_namespace()}'.encode()):08x}"


def open_lock(directory: Path) -> int:
    """The file that says, by its lock, that there is a watchdog."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(directory / f"{name_of_host()}{LOCK}", flags, 0o600)


def is_replaced(directory: Path, lock: int) -> bool:
    """Whether somebody removed the file of `lock`, and another one stands there, with a lock of its own."""
    try:
        there = os.stat(directory / f"{name_of_host()}{LOCK}")
    except OSError:
        return False
    return there.st_ino != os.fstat(lock).st_ino


def take(lock: int) -> bool:
    """Whether nobody else has it. Raises `OSError` where files cannot be locked."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start(directory: Path, lock: int) -> str:
    if not sys.executable:
        return "nobody knows which Python this is"
    # Of numpy's threads it needs none.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _AWAY, str(directory), str(lock)],
        env=environment,
        cwd="/",
        pass_fds=[lock],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    code = started.wait(START_S)
    return f"its process ended with code {code}" if code else ""
