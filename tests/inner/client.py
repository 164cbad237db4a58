"""Starts the server of `server.py` when first needed, and has it fork sessions; or starts a session by itself."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from rankdrill.worlds.processes.nursery.key import matters
from tests.inner.server import CODE, MAX_REQUEST, READY

__all__ = ["Running", "Server", "started"]

SERVER = Path(__file__).with_name("server.py")
START_BOUND_S = 120.0


class Running(Protocol):
    """A session under way."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; raises `subprocess.TimeoutExpired` after `timeout` seconds."""


class Server:
    """At the other end: one process that forks one session at a time."""

    def __init__(self) -> None:
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._read_at_start = _read_at_start(os.environ)
        self._under_way: Forked | None = None
        assert self.heard(START_BOUND_S) == READY

    def fork(
        self,
        args: list[str],
        cwd: Path,
        environ: Mapping[str, str],
        streams: tuple[int, int, int],
        module: str = "pytest",
    ) -> Running:
        """Fork a session; raises `ValueError` where only one that is started would be as `environ` wants it.

        With another `module` it is what ``python -m`` would start by that name.
        """
        wanted = _read_at_start(environ)
        if wanted != self._read_at_start:
            others = sorted(name for name, _ in wanted.items() ^ self._read_at_start.items())
            raise ValueError(f"what is imported already has read other values of {others}: say why it is fresh")
        if self._under_way is not None:
            self._under_way.wait()
        request = json.dumps({"module": module, "args": args, "cwd": str(cwd), "environ": dict(environ)}).encode()
        assert len(request) <= MAX_REQUEST
        socket.send_fds(self._mine, [request], streams)
        self._under_way = Forked(self)
        return self._under_way

    def heard(self, timeout: float | None) -> bytes:
        """Its next word."""
        if not select.select([self._mine], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(SERVER), timeout or 0.0)
        word = self._mine.recv(64)
        assert word, f"the server has ended: {self._process.wait()}"
        return word

    def close(self) -> None:
        """End it, and a session that nobody has waited for."""
        self._mine.close()
        self._process.wait(START_BOUND_S)


class Forked:
    """A session that the server has forked."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            self._code = CODE.unpack(self._server.heard(timeout))[0]
        return int(self._code)


def started(args: list[str], cwd: Path, environ: Mapping[str, str], streams: tuple[int, int, int]) -> Running:
    """Start a session in an interpreter of its own."""
    stdin, stdout, stderr = streams
    command = [sys.executable, "-m", "pytest", *args]
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=environ, start_new_session=True
    )


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """The path aside, which a fork takes over."""
    return {name: value for name, value in environ.items() if matters(name) and name != "PYTHONPATH"}
