"""Which faults have no meaning in a world of MPI's ranks, refused before anything runs."""

from __future__ import annotations

from rankdrill.errors import PlanError
from rankdrill.faults.check import find_strike
from rankdrill.faults.plan import Plan

__all__ = ["check_among_mpi"]


def check_among_mpi(plan: Plan) -> None:
    """Raise `PlanError` for a fault that sets ranks apart by torch's tensors and work, which MPI's calls have not."""
    for fault in plan.faults:
        if find_strike(fault.what.name).bends:
            raise PlanError(
                f"{fault.what.name} strikes at torch's collectives, and not in a world with mpi=True; "
                "kill, stop, exit and delay do, before and after collective.mpi_gather, say"
            )
