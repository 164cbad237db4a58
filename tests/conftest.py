"""Runs sessions of pytest in processes of their own, as `python -m pytest` would."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.inner.client import Running, Server, started

SESSION_S = 600.0

Begin = Callable[..., Running]
"""``begin(args, cwd, streams, fresh="", environ=None)``: begin one on three descriptors; see `Session` for the rest."""
Session = Callable[..., pytest.RunResult]
"""``session(*args, fresh="", environ=None)``: run one in pytester's directory; `fresh` says why it is not forked."""


@pytest.fixture(scope="session")
def forking() -> Iterator[Callable[[], Server]]:
    """Gives the server that sessions are forked from, from the first that is."""
    servers: list[Server] = []

    def server() -> Server:
        if not servers:
            servers.append(Server())
        return servers[0]

    yield server
    for each in servers:
        each.close()


@pytest.fixture(scope="session")
def begin(forking: Callable[[], Server]) -> Begin:
    """See `Begin`."""

    def begun(
        args: list[str],
        cwd: Path,
        streams: tuple[int, int, int],
        fresh: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> Running:
        # Not with `cwd` on PYTHONPATH, as pytester has it: each session would then need another nursery.
        environ = os.environ if environ is None else environ
        return (started if fresh else forking().fork)(args, cwd, environ, streams)

    return begun


@pytest.fixture
def session(pytester: pytest.Pytester, begin: Begin) -> Session:
    """See `Session`."""
    numbers = itertools.count()

    def ran(*args: str, fresh: str = "", environ: Mapping[str, str] | None = None) -> pytest.RunResult:
        began, number = time.monotonic(), next(numbers)
        base = f"--basetemp={pytester.path / f'session-{number}'}"
        out, err = (pytester.path.parent / f"{pytester.path.name}-{number}.{name}" for name in ("out", "err"))
        with open(os.devnull) as null, out.open("wb") as stdout, err.open("wb") as stderr:
            streams = (null.fileno(), stdout.fileno(), stderr.fileno())
            code = begin([base, *args], pytester.path, streams, fresh, environ).wait(SESSION_S)
        lines = [path.read_text(errors="replace").splitlines() for path in (out, err)]
        for each in lines:
            print(*each, sep="\n")
        return pytest.RunResult(code, lines[0], lines[1], time.monotonic() - began)

    return ran
