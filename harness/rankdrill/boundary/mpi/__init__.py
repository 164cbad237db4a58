"""mpi4py's calls become steps: what ranks do on ``MPI.COMM_WORLD`` and on communicators that are made from it."""

from rankdrill.boundary.mpi.install import install_mpi

__all__ = ["install_mpi"]
