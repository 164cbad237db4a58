"""A training that hangs: one rank's share of the data is a batch short, so it leaves its loop early.

    torchrun --nproc-per-node 4 examples/hung_training.py /tmp/record      # hangs: end it with Ctrl-C or kill -9
    rankdrill explain /tmp/record                                          # says which rank, and where

It is recorded by one line. The others wait in the all_reduce of a batch that rank 2 does not have, and rank 2, which
has gone past it, in the barrier behind.
"""

import sys

import torch
import torch.distributed as dist

import rankdrill

BATCHES = 20


def train(batches: list[torch.Tensor]) -> float:
    """Sum up the gradients of all ranks, batch by batch."""
    weight = torch.zeros(4)
    for batch in batches:
        gradient = batch - weight
        dist.all_reduce(gradient)
        weight += 0.1 * gradient / dist.get_world_size()
    return float(weight.mean())


def main() -> None:
    rankdrill.record(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    short = rank == 2
    print(f"rank {rank} trains", flush=True)
    print(f"rank {rank}: {train([torch.ones(4)] * (BATCHES - short)):.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
