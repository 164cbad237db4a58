"""Whether mpi4py and MPICH are installed: what else is wrong with worlds of MPI's ranks, the tests are to find."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

__all__ = ["needs_mpi"]

_ASKS = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"


def _is_there() -> bool:
    if find_spec("mpi4py") is None:
        return False
    asked = subprocess.run([sys.executable, "-c", _ASKS], capture_output=True, text=True, timeout=60)
    return "MPICH" in asked.stdout


needs_mpi = pytest.mark.skipif(
    not _is_there(), reason='mpi4py over MPICH is not installed: pip install "rankdrill[mpi]"'
)
