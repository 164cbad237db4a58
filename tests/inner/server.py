"""A process that has imported what every session of pytest here imports, torch above all, and forks sessions.

Started, each would spend some three seconds of a processor on imports. This file is run by its path and imports
neither rankdrill nor anything else of the project: a session is to import these as it would when started.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import warnings
from dataclasses import dataclass

MAX_REQUEST = 1 << 17
READY = b"ready"
CODE = struct.Struct("<i")  # as of `subprocess`: negative for a signal
OWN = ("rankdrill", "rankdrill_strategies", "tests")


@dataclass(frozen=True)
class Request:
    """What a session is told, and what it has from its parent; descriptors 0, 1 and 2 come with it."""

    module: str  # what `python -m` is to run
    args: list[str]
    cwd: str
    environ: dict[str, str]


def main(fd: int) -> None:
    """Serve whoever is at the other end of socket `fd`, until nobody is."""
    base = _import_all()
    connection = socket.socket(fileno=fd)
    connection.send(READY)
    while True:
        message, fds, _, _ = socket.recv_fds(connection, MAX_REQUEST, 3)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(Request(**json.loads(message)), fds, base)
            return
        for each in fds:
            os.close(each)
        connection.send(CODE.pack(_outlived(pid, connection)))


def _import_all() -> list[str]:
    """Import, by a session without tests that has pytest load and rewrite the installed plugins; returns the path."""
    mine = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    base = [entry for entry in sys.path[1:] if entry not in mine]  # the first is this file's directory
    del sys.path[0]
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with warnings.catch_warnings():  # a session begins each test with pytest's filters, and not with torch's
        import pytest
        import torch.distributed  # noqa: F401

    # pytest-rerunfailures would start a thread; pytest-asyncio would warn of an option.
    without = [
        part for name in ("rankdrill", "rerunfailures", "asyncio", "cacheprovider") for part in ("-p", f"no:{name}")
    ]
    with tempfile.TemporaryDirectory() as empty:
        pytest.main(["-q", *without, f"--rootdir={empty}", empty])
    loaded = [name for name in sys.modules if name.partition(".")[0] in OWN]
    assert not loaded, f"a session would find these imported: {loaded}"
    assert len(os.listdir("/proc/self/task")) == 1, "a fork does not take other threads along"
    gc.collect()
    gc.freeze()
    return base


def _outlived(pid: int, connection: socket.socket) -> int:
    """Wait for the session; end it when nobody waits for it any more. Returns its exit code."""
    pidfd = os.pidfd_open(pid)
    ready, _, _ = select.select([pidfd, connection.fileno()], [], [])
    os.close(pidfd)
    if pidfd not in ready:
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become(request: Request, fds: list[int], base: list[str]) -> None:
    """In the forked process: be what `python -m` and its module would be."""
    os.setsid()
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.environ)
    _open_streams()
    _find_modules(request, base)
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.argv[1:] = request.args
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def _open_streams() -> None:
    """As an interpreter does at its start: how they buffer depends on what the descriptors are."""
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115
    for fd, name in ((1, "stdout"), (2, "stderr")):
        lines = fd == 2 or os.isatty(fd)
        stream = open(fd, "w", 1 if lines else -1, encoding="utf-8", closefd=False)  # noqa: SIM115
        stream.reconfigure(write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _find_modules(request: Request, base: list[str]) -> None:
    named = request.environ.get("PYTHONPATH", "")
    path = [os.path.abspath(entry) for entry in named.split(os.pathsep)] if named else []
    sys.path[:] = [request.cwd, *dict.fromkeys(path + base)]
    importlib.invalidate_caches()


if __name__ == "__main__":
    main(int(sys.argv[1]))
