"""Ranks that a script spawns within a task of Slurm: its variables speak of their parent, and of none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rankdrill.diagnosis import FindingKind
from rankdrill.explain.recording import explain_recording
from rankdrill.explain.recording.reading import read_directory
from rankdrill.explain.recording.runs import told_apart
from tests.recording.jobs import explained

ROOT = Path(__file__).parents[2]
TASK = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
SPAWNING = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank, place):
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=3)
    for step in range(4):
        if (rank, step) != (2, 3):
            dist.all_reduce(torch.ones(4))
    dist.barrier()

if __name__ == "__main__":
    mp.spawn(train, (sys.argv[1],), 3)
"""


def test_they_are_ranks_of_one_run_and_their_parent_is_none(tmp_path: Path) -> None:
    script, record = tmp_path / "spawning.py", tmp_path / "record"
    script.write_text(SPAWNING)
    path = os.pathsep.join(filter(None, [str(ROOT / "harness"), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "rankdrill.record", "--to", str(record), str(script), str(tmp_path / "store")]
    with subprocess.Popen(command, env={**os.environ, **TASK, "PYTHONPATH": path}, stderr=subprocess.DEVNULL) as parent:
        try:
            explained(record, lambda found: any(cause.finding.culprits for cause in found.causes))
        finally:
            parent.terminate()  # torch has the ranks end with it
    found = explain_recording(record)
    (cause,) = found.causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (2,))
    assert (found.world_size, found.runs) == (3, ())
    run, other = told_apart(read_directory(record))
    assert (sorted(run.ranks), len(other.strangers), other.ranks) == ([0, 1, 2], 1, {})
    assert run.name.startswith("Slurm job 7, begun ")
