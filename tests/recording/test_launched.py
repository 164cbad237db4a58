"""Under the real torchrun: a script with one line, the same script with none, and the example."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankdrill.diagnosis import FindingKind
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording import explain_recording
from tests.recording.jobs import explained

ROOT = Path(__file__).parents[2]
HANGING = """
import sys
import torch
import torch.distributed as dist

def train(rank):
    for step in range(8):
        if (rank, step) != (2, 5):
            dist.all_reduce(torch.ones(4))
        dist.all_reduce(torch.ones(4))
    print(rank, sys.argv[1:], flush=True)
    dist.barrier()

if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
"""
LEFT_OUT_AT = HANGING.splitlines().index("            dist.all_reduce(torch.ones(4))") + 1


@contextmanager
def torchrun(*command: str, variables: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """torchrun with three ranks; killed with all of them at the end."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    path = os.pathsep.join(filter(None, [str(ROOT / "harness"), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **(variables or {})}
    started = subprocess.Popen(
        [*launcher, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        kill_session(started.pid)
        started.communicate()


def kill_session(session: int) -> None:
    """Ranks are leaders of no group, but torchrun gives each a session of its own."""
    for pid in [session, *children_of(session)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def hung(directory: Path, command: Sequence[str], variables: dict[str, str] | None = None) -> Explanation:
    with torchrun(*command, variables=variables):
        explained(directory, lambda found: any(cause.finding.culprits for cause in found.causes))
    return explain_recording(directory)


def assert_told(found: Explanation, file: Path, line: int) -> None:
    (cause,) = found.causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (2,))
    site = cause.finding.sides[0].sites[0]
    assert site is not None
    assert (Path(site.file).resolve(), site.line) == (file.resolve(), line)
    assert found.world_size == 3


def test_a_script_with_one_line(tmp_path: Path) -> None:
    script, directory = tmp_path / "train.py", tmp_path / "record"
    recorded = f'    import rankdrill; rankdrill.record("{directory}")\n    dist.init'
    script.write_text(HANGING.replace("    dist.init", recorded))
    assert_told(hung(directory, [str(script)]), script, LEFT_OUT_AT)


@pytest.mark.nightly  # (how they are recorded: their watchdogs' reports are asked for it each time)
@pytest.mark.parametrize("by", ["argument", "variable"])
def test_a_script_with_no_line(by: str, tmp_path: Path) -> None:
    script, directory = tmp_path / "train.py", tmp_path / "record"
    script.write_text(HANGING)
    to = ["--to", str(directory)] if by == "argument" else []
    variables = {"RANKDRILL_RECORD": str(directory)} if by == "variable" else {}
    command = ["-m", "rankdrill.record", *to, str(script), "--lr", "0.1"]
    assert_told(hung(directory, command, variables), script, LEFT_OUT_AT)


@pytest.mark.nightly
def test_the_example(tmp_path: Path) -> None:
    script, directory = ROOT / "examples" / "hung_training.py", tmp_path / "record"
    found = hung(directory, [str(script), str(directory)])
    (cause,) = found.causes
    line = script.read_text().splitlines().index("        dist.all_reduce(gradient)") + 1
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (2,))
    assert cause.finding.step == "all_reduce #19 on 'default'"
    assert cause.finding.sides[0].sites[0] is not None
    assert cause.finding.sides[0].sites[0].line == line
