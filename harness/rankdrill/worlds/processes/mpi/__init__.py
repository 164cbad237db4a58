"""Ranks as those of ``MPI.COMM_WORLD``: who answers them when they look for one another, and how each joins."""

from rankdrill.worlds.processes.mpi.means import require_mpi
from rankdrill.worlds.processes.mpi.pmi import ProcessManager

__all__ = ["ProcessManager", "require_mpi"]
