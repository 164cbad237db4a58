"""Which of mpi4py's calls are steps, and what each is called: as mpi4py does, with ``mpi_`` before it.

``gather`` and ``Gather`` are two: the one pickles, the other moves buffers, and they do not meet.
"""

from __future__ import annotations

from rankdrill.step import MPI_CALLS

__all__ = [
    "BOTH",
    "COLLECTIVES",
    "MAKERS",
    "MEMBERS_MAKE",
    "PERSISTENT_SENDS",
    "RECEIVES",
    "REDUCING",
    "ROOTED",
    "SENDS",
    "peer_place",
]

MAKERS = frozenset({"Clone", "Create", "Dup", "Dup_with_info", "Split", "Split_type"})
"""Collectives that return a communicator."""
MEMBERS_MAKE = frozenset({"Create_group"})
"""What returns one too, and is called by its members alone."""
COLLECTIVES = frozenset(MPI_CALLS)
"""Every member of a communicator calls them in one order, also those that return before they are over."""
# The place of an argument among those without a name: (root), (reduce op).
ROOTED = {
    "bcast": 1,
    "Bcast": 1,
    "Ibcast": 1,
    "gather": 1,
    "scatter": 1,
    "Gather": 2,
    "Gatherv": 2,
    "Igather": 2,
    "Igatherv": 2,
    "Scatter": 2,
    "Scatterv": 2,
    "Iscatter": 2,
    "Iscatterv": 2,
    "reduce": 2,
    "Reduce": 3,
    "Ireduce": 3,
}
"""Collectives with a root, and where it stands among the arguments."""
REDUCING = {
    "reduce": 1,
    "allreduce": 1,
    "scan": 1,
    "exscan": 1,
    "Reduce": 2,
    "Allreduce": 2,
    "Scan": 2,
    "Exscan": 2,
    "Ireduce": 2,
    "Iallreduce": 2,
}
"""Collectives with a reduce op, and where it stands."""
SENDS = frozenset(
    {
        *("send", "bsend", "ssend", "isend", "ibsend", "issend"),
        *("Send", "Bsend", "Ssend", "Rsend", "Isend", "Ibsend", "Issend", "Irsend"),
    }
)
PERSISTENT_SENDS = frozenset({"Send_init", "Bsend_init", "Ssend_init", "Rsend_init", "Psend_init"})
"""Sends that take place when and as often as they are started."""
RECEIVES = {
    "recv": True,
    "Recv": True,
    "irecv": False,
    "Irecv": False,
    "Recv_init": False,
    "Precv_init": False,
    "mprobe": False,
    "Mprobe": False,
    "improbe": False,
    "Improbe": False,
}
"""Receives, and whether each is over when it returns."""
# The place of the source; the tag follows it.
BOTH = {
    "sendrecv": 4,
    "Sendrecv": 4,
    "Sendrecv_replace": 3,
    "Isendrecv": 4,
    "Isendrecv_replace": 3,
}
"""A send to one rank and a receive from another in one call, and where the source stands."""


def peer_place(name: str) -> int:
    """Where the rank stands among the arguments of a send or receive; its tag follows."""
    if name.endswith("probe"):
        return 0
    return 2 if name in ("Psend_init", "Precv_init") else 1
