"""A forked session is as a started one, ends as one, and is refused where it could not be."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.conftest import Session

TELLS = """
import gc, json, os, random, signal, sys, threading, warnings

def kind(fd):
    try:
        name = os.readlink(f"/proc/self/fd/{fd}").partition(":")[0].rpartition("/")[2]
        return "temporary" if "(deleted)" in name else name.rpartition(".")[2]  # err and out, of this session
    except OSError:  # that of the listing
        return ""

def test_it(request):
    names = request.config.pluginmanager.list_name_plugin()
    told = {
        "path": sys.path, "environ": dict(os.environ), "cwd": os.getcwd(), "flags": list(sys.flags),
        "options": [arg for arg in sys.argv[1:] if "basetemp" not in arg], "main": sys.modules["__main__"].__name__,
        "files": sorted(map(kind, os.listdir("/proc/self/fd"))), "leads": os.getsid(0) == os.getpid(),
        "signals": {int(each): str(signal.getsignal(each)) for each in signal.valid_signals()},
        "threads": threading.active_count(), "tasks": len(os.listdir("/proc/self/task")),
        "own": sorted(name for name in sys.modules if name.partition(".")[0] in ("rankdrill", "tests")),
        "plugins": sorted(name for name, plugin in names if plugin and not name.isdigit()),
        "warnings": len(warnings.filters), "encodings": [sys.stdout.encoding, sys.stderr.encoding],
        "umask": os.umask(0o22), "cores": len(os.sched_getaffinity(0)), "garbage": gc.isenabled(),
    }
    with open("told.json", "w") as file:
        json.dump([told, random.random()], file)
"""
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:asyncio")


def told(pytester: pytest.Pytester, ran: pytest.RunResult) -> tuple[dict[str, Any], float]:
    ran.assert_outcomes(passed=1)
    seen, number = json.loads((pytester.path / "told.json").read_text())
    return seen, number


@pytest.mark.nightly
def test_a_forked_session_is_as_a_started_one(pytester: pytest.Pytester, session: Session) -> None:
    pytester.makepyfile(TELLS)
    forked, one = told(pytester, session(*OPTIONS))
    started, other = told(pytester, session(*OPTIONS, fresh="to be compared with"))
    assert forked == started
    assert one != other != told(pytester, session(*OPTIONS))[1] != one, "random numbers are each session's own"


def test_it_tells_how_the_session_ended(pytester: pytest.Pytester, session: Session) -> None:
    pytester.makepyfile("import os\n\ndef test_it():\n    os.kill(os.getpid(), int(os.environ['ENDS_BY']))\n")
    for signum in (signal.SIGKILL, signal.SIGTERM):
        ran = session(*OPTIONS, environ=os.environ | {"ENDS_BY": str(int(signum))})
        assert ran.ret == -signum
    assert session("--no-such-option").ret == pytest.ExitCode.USAGE_ERROR


def test_what_is_read_at_the_start_of_an_interpreter_is_refused(session: Session) -> None:
    with pytest.raises(ValueError, match="say why it is fresh"):
        session(environ=os.environ | {"PYTHONHASHSEED": "1"})
