"""How a rank joins ``MPI.COMM_WORLD``: as if an ``mpirun`` had started it, and before any body runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankdrill.errors import UnsupportedPlatform
from rankdrill.worlds.private import SEGMENTS
from rankdrill.worlds.processes.messages import RankSpec
from rankdrill.worlds.processes.mpi.means import INSTALL

__all__ = ["join", "variables"]

_OF_MPICH = "mpich_shm_"
# Ranks share one machine, and often have more ranks than cores. Unless the environment says otherwise:
_DEFAULTS = {
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "10",  # who waits leaves its core to whom it waits for
    "MPIR_CVAR_CH4_NETMOD": "ucx",
    "UCX_TLS": "self,sm",  # no address of the network's is taken
}


def variables(rank: int, size: int) -> dict[str, str]:
    """What MPICH's own launcher tells the programs that it starts, and some of them ask."""
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "MPI_LOCALRANKID": str(rank),
        "MPI_LOCALNRANKS": str(size),
    }


def join(spec: RankSpec) -> Any:
    """Initialise MPI, the process manager being at the other end of `spec.pmi`; returns the module ``mpi4py.MPI``.

    Raises `UnsupportedPlatform` where there is no MPI, or another than MPICH: ranks of Open MPI find each other by
    PMIx, which only a launcher of its own speaks.
    """
    with _environment(spec):
        try:
            import mpi4py

            mpi4py.rc.initialize = False  # by being imported; whose MPI it is has to be known before
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UnsupportedPlatform(f"mpi=True needs mpi4py and MPICH ({why}); {INSTALL} brings both") from None
        vendor, version = MPI.get_vendor()
        if vendor != "MPICH" and "MPICH" not in MPI.Get_library_version():
            found = f"{vendor} {'.'.join(map(str, version))}"
            raise UnsupportedPlatform(f"mpi=True needs MPICH, and mpi4py has found {found}; {INSTALL} brings MPICH")
        if not MPI.Is_initialized():
            MPI.Init_thread()
    MPI.COMM_WORLD.Barrier()
    if spec.rank == 0:
        _unlink_segments()
    return MPI


def _unlink_segments() -> None:
    """Remove the names of the memory that ranks share, which all have mapped by now.

    MPICH would when it is finalised; ranks may be killed before. What it shares later it unlinks at once.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")
        segment = Path(path[1] + path[2])
        if segment.parent == SEGMENTS and segment.name.startswith(_OF_MPICH):
            segment.unlink(missing_ok=True)


@contextmanager
def _environment(spec: RankSpec) -> Iterator[None]:
    """What MPICH asks the environment for as it starts, and no child of this process is to find there."""
    before = dict(os.environ)
    asked = {"PMI_FD": str(spec.pmi), "PMI_SPAWNED": "0", **variables(spec.rank, spec.world_size)}
    os.environ.update(_DEFAULTS | before | asked)
    try:
        yield
    finally:
        for name in (*_DEFAULTS, *asked):
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
