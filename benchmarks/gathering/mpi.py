"""mpi4py beside it, where it is installed: the same payloads on as many processes that `mpirun` starts."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.gathering.payloads import Payload
from benchmarks.gathering.results import Cell, Repetition
from benchmarks.gathering.rounds import Effort
from benchmarks.gathering.setting import MPI

SCRIPT = Path(__file__).parents[1] / "peers" / "gather_by_mpi.py"
BOUND_S = 600.0
WAYS = {"mpi": "mpi4py allgather", "mpi-pkl5": "mpi4py pkl5 allgather"}


def run_payload(
    size: int, payload: Payload, keys: Sequence[str], effort: Effort, tell: Callable[[str, float], None]
) -> list[Cell]:
    """A cell for each of `keys`. Not in rounds with the others: these are processes of their own."""
    cells = [Cell(key, WAYS[key], MPI, payload.key, missing=_why_not()) for key in keys]
    if cells and not cells[0].missing:
        tell(f"{payload.key}: mpi4py", 1.0)
        _measure(cells, size, payload, effort)
    return cells


def _why_not() -> str:
    if shutil.which("mpirun") is None:
        return "no mpirun on the PATH"
    return "" if importlib.util.find_spec("mpi4py") else "mpi4py is not installed"


def _measure(cells: Sequence[Cell], size: int, payload: Payload, effort: Effort) -> None:
    command = ["mpirun", "-n", str(size), "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    command += [sys.executable, str(SCRIPT), payload.key, str(effort.wanted(payload)), str(effort.budget_s)]
    why, found = _run([*command, *(cell.way for cell in cells)])
    for cell in cells:
        cell.repetitions = [Repetition(*fields) for fields in found.get(cell.way, [])]
        cell.missing = "" if cell.repetitions else why


def _run(command: Sequence[str]) -> tuple[str, dict[str, list[tuple[float, float, int | None]]]]:
    """Why there is nothing, and what there is."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S)
    except subprocess.TimeoutExpired:
        return f"did not end within {BOUND_S:.0f} s", {}
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not lines:
        return (ran.stderr.strip().splitlines() or ["it printed nothing"])[-1], {}
    return "it printed nothing on this way", json.loads(lines[-1])
