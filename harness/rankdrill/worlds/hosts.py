"""Hosts: the machines that the ranks of a world take themselves to be on.

All of them are on this one. But NCCL refuses two ranks on one GPU of one host, and a script puts itself on the GPU
that LOCAL_RANK says. So ranks that are more than there are GPUs are told that they are on several hosts, each of which
has all of the GPUs: a GPU is shared in turns, and what NCCL sends from host to host goes over the loopback interface.
Seen with NCCL 2.28 on an H100: an `all_reduce` takes 9 ms between two ranks, 50 ms among four.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankdrill.worlds.gpus import count_gpus

__all__ = ["Seat", "ranks_per_host", "seat", "works_on_gpus"]


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank is: on which of `hosts`, and as which of the ranks there."""

    host: int
    hosts: int
    local_rank: int
    local_world_size: int

    def nccl_variables(self) -> dict[str, str]:
        """What NCCL is told, so that it takes the ranks of different hosts for such; nothing where there is one."""
        if self.hosts == 1:
            return {}
        return {
            "NCCL_HOSTID": f"rankdrill-{self.host}",
            "NCCL_NET": "Socket",
            "NCCL_SOCKET_IFNAME": "lo",
        }


def seat(rank: int, world_size: int, per_host: int) -> Seat:
    """The seat of `rank`; `per_host` ranks fill a host, and the last may have free ones."""
    host, local_rank = divmod(rank, per_host)
    return Seat(host, -(-world_size // per_host), local_rank, min(per_host, world_size - host * per_host))


def ranks_per_host(n: int, backend: str, device: str) -> int:
    """How many ranks of `n` are on a host: as many as there are GPUs, where they work on these; else all."""
    if not works_on_gpus(backend, device):
        return n
    return min(n, count_gpus() or n)


def works_on_gpus(backend: str, device: str) -> bool:
    """Whether ranks over that backend and device need a GPU."""
    return device == "cuda" or "nccl" in backend
