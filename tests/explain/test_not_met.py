"""Jobs that hang before their group is there, or lose a rank that nobody waits for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from rankdrill.diagnosis import Confidence, FindingKind
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording import explain_recording
from tests.recording.jobs import await_that, explained, job

ROOT = Path(__file__).parents[2]
LATE = """
import os, time
import torch.distributed as dist
if os.environ["RANK"] == "1":
    time.sleep(1000)
dist.init_process_group("gloo")
"""


@contextmanager
def started(script: Path, record: Path, ranks: Sequence[int], size: int) -> Iterator[None]:
    """`script` as those `ranks` of a job of `size`, as a launcher starts them: in another directory, recorded."""
    path = os.pathsep.join(filter(None, [str(ROOT / "harness"), os.environ.get("PYTHONPATH", "")]))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    meeting = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared = {**os.environ, "PYTHONPATH": path, **meeting}
    command = [sys.executable, "-m", "rankdrill.record", "--to", str(record), script.name]
    processes = [
        subprocess.Popen(
            command,
            cwd=script.parent,
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in ranks
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def has_a_cause(found: Explanation) -> bool:
    return bool(found.causes)


def test_who_has_not_come_to_make_the_group(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE)
    with started(script, tmp_path / "record", [0, 1, 2], 4):
        found = explained(tmp_path / "record", lambda found: has_a_cause(found) and len(found.places) > 2)
    (cause,) = found.causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.STUCK_RANK, (1, 3))
    assert cause.confidence is Confidence.POSSIBLE
    site = cause.finding.sides[0].sites[0]
    assert site is not None
    assert (site.file, site.line) == (str(script), 5), "by its whole path: whoever explains it may be elsewhere"
    assert "ranks 0, 2 wait in init_process_group for ranks 1, 3" in str(cause.finding)
    script.unlink()
    assert f"the source is not there to be read: {script}" in explain_recording(tmp_path / "record").gaps


def test_all_wait_for_each_other_at_an_address(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    nowhere = '"gloo", init_method="tcp://127.0.0.1:1", rank=1, world_size=2'
    script.write_text(LATE.replace('"1"', '"no rank"').replace('"gloo"', nowhere))
    with started(script, tmp_path / "record", [0, 1], 2):
        found = explained(tmp_path / "record", lambda found: any("do not meet" in fit for fit in found.fits))
    assert found.causes == ()
    assert "all ranks are in init_process_group, and do not meet at 127.0.0.1:" in found.fits[0]


def sleep_apart(rank: int, ready: str) -> None:
    dist.all_reduce(torch.ones(1))
    Path(f"{ready}{rank}").touch()
    time.sleep(1000)


def test_who_was_killed_is_told_though_nobody_waits_for_it(tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    with job(sleep_apart, 3, tmp_path / "record", ready) as running:
        await_that(lambda: all(Path(f"{ready}{rank}").exists() for rank in range(3)), "all sleep")
        assert explain_recording(running.directory).causes == ()
        pid = running.ranks[1].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        found = explained(running.directory, has_a_cause)
    (cause,) = found.causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.LOST_RANK, (1,))
    assert cause.confidence is Confidence.LIKELY
