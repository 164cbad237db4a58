"""Whether mpi4py and MPICH are installed as the extra has them: what else is wrong, the tests are to find."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

__all__ = ["needs_mpi"]


def _is_there() -> bool:
    """Without asking MPI itself: ranks, too, import the modules that ask."""
    try:
        return bool(version("mpi4py") and version("mpich"))
    except PackageNotFoundError:
        return False


needs_mpi = pytest.mark.skipif(
    not _is_there(), reason='mpi4py over MPICH is not installed: pip install "rankdrill[mpi]"'
)
