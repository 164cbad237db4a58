"""What is written down of a process and its place: of the environment only what launchers set, by name."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from rankdrill.host import boot_id, pid_namespace, started_at

__all__ = ["LAUNCHER_VARIABLES", "about_this_process", "number_in"]

LAUNCHER_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NNODES",
    "SLURMD_NODENAME",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "CUDA_VISIBLE_DEVICES",
)
"""Whatever else the environment holds is not looked at: it may be a secret. docs/record.md lists them."""
_LONGEST = 256  # of one value
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def about_this_process() -> dict[str, Any]:
    """Host, process and launcher; both clocks, read at the same moment."""
    # What a process of multiprocessing inherits says which rank its parent is, or that it starts some.
    spawned = multiprocessing.parent_process() is not None
    ranks, sizes = (_RANKS[:1], _SIZES[:1]) if spawned else (_RANKS, _SIZES)
    variables = {name: os.environ[name][:_LONGEST] for name in LAUNCHER_VARIABLES if name in os.environ}
    return {
        "host": socket.gethostname(),
        "boot": boot_id(),
        "pid": os.getpid(),
        "pids": pid_namespace(),
        "started": started_at(os.getpid()),
        "parent": [os.getppid(), started_at(os.getppid())],
        "monotonic_ns": time.monotonic_ns(),
        "realtime_ns": time.time_ns(),
        "launcher": variables,
        "rank": number_in(variables, ranks),
        "world_size": number_in(variables, sizes),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


def number_in(variables: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The first of these variables that is a number."""
    return next((int(variables[name]) for name in names if variables.get(name, "").isdecimal()), None)
