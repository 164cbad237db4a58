"""A watchdog under torchrun, and one of each host."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recording.jobs import await_that
from tests.recording.test_launched import HANGING, ROOT, torchrun
from tests.watchdog.test_watchdog import report_of, reports_in, watchdogs_of


@pytest.mark.nightly
@pytest.mark.parametrize("by", [pytest.param("argument", marks=pytest.mark.nightly), "variable"])
def test_a_script_with_no_line_is_watched(by: str, tmp_path: Path) -> None:
    script, directory = tmp_path / "train.py", tmp_path / "record"
    script.write_text(HANGING)
    asked = ["--hang-after", "500"] if by == "argument" else []
    variables = {"RANKDRILL_HANG_AFTER": "500"} if by == "variable" else {}
    command = ["-m", "rankdrill.record", "--to", str(directory), *asked, str(script)]
    with torchrun(*command, variables=variables) as launcher:
        report = report_of(directory)
        assert (
            f"missing call: rank 2 leaves out all_reduce #10 on 'default', at {script}".replace("at /", "at ") in report
        )
        assert launcher.poll() is None
    await_that(lambda: watchdogs_of(directory) == [], "the watchdog has ended")


@pytest.mark.nightly
def test_each_host_tells_of_what_it_sees(tmp_path: Path) -> None:
    """Two hosts are two spaces of processes, of which neither sees the other's."""
    script, directory = tmp_path / "train.py", tmp_path / "record"
    script.write_text(HANGING)
    recorded = [sys.executable, "-m", "rankdrill.record", "--to", str(directory), "--hang-after", "500", str(script)]
    away = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*away, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no spaces of processes for its tests")
    path = os.pathsep.join(filter(None, [str(ROOT / "harness"), os.environ.get("PYTHONPATH", "")]))
    shared = {
        **os.environ,
        "PYTHONPATH": path,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "WORLD_SIZE": "4",
    }
    shell = f"for rank in $RANKS; do RANK=$rank {shlex.join(recorded)} & done; wait"
    hosts = [
        subprocess.Popen([*how, "bash", "-c", shell], env={**shared, "RANKS": ranks}, start_new_session=True)
        for how, ranks in (([], "0 1"), (away, "2 3"))
    ]
    try:
        await_that(lambda: len(reports_in(directory)) == 2, "each host has a report")
    finally:
        for host in hosts:
            os.killpg(host.pid, signal.SIGKILL)
            host.wait()
    told = {line for report in reports_in(directory) for line in report.splitlines() if "not on this host" in line}
    assert told == {f"  ranks {ranks}: not on this host, or gone" for ranks in ("0, 1", "2, 3")}
    assert all("missing call: rank 2 leaves out all_reduce #10" in report for report in reports_in(directory))
    assert len(list(directory.glob("*.watchdog"))) == 2
    await_that(lambda: watchdogs_of(directory) == [], "both watchdogs have ended")


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])
