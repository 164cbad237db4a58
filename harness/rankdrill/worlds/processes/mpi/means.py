"""Whether a world of MPI's ranks can be here, asked before one is started."""

from __future__ import annotations

from importlib.util import find_spec

from rankdrill.errors import UnsupportedPlatform

__all__ = ["INSTALL", "require_mpi"]

INSTALL = 'pip install "rankdrill[mpi]"'


def require_mpi() -> None:
    """Raise `UnsupportedPlatform` where mpi4py is not installed. What MPI it finds, ranks see."""
    if find_spec("mpi4py") is None:
        raise UnsupportedPlatform(f"mpi=True needs mpi4py, which is not installed, and MPICH; {INSTALL} brings both")
