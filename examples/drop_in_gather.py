"""A gather as it is written by hand in many repositories, and the import that replaces it.

    python examples/drop_in_gather.py

Both get the same fault: on rank 2 the second of three payloads has grown past the buffer. By hand, rank 2 raises alone
and goes on; its third payload completes the others' second round, with a total that never was, and then they wait for
ever. Replaced, all ranks raise, the error names rank 2, and the third round is right.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_list

FAULT = "rank 2: oversize(65536) at object.* #2"  # its second payload


def all_gather_list_by_hand(data: Any, max_size: int = 16384) -> list[Any]:
    """Every rank's `data`: each writes its own slot of a zeroed buffer, and the sum of all buffers has all slots."""
    rank, size = dist.get_rank(), dist.get_world_size()
    encoded = pickle.dumps(data)
    if len(encoded) + 4 > max_size:
        raise ValueError(f"encoded data exceeds max_size: {len(encoded) + 4}")  # on this rank; the others wait below
    buffer = torch.zeros(size * max_size, dtype=torch.uint8)
    slot = len(encoded).to_bytes(4, "big") + encoded
    buffer[rank * max_size : rank * max_size + len(slot)] = torch.frombuffer(bytearray(slot), dtype=torch.uint8)
    dist.all_reduce(buffer)
    slots = [bytes(part.tolist()) for part in torch.split(buffer, max_size)]
    return [pickle.loads(slot[4 : 4 + int.from_bytes(slot[:4], "big")]) for slot in slots]


def log_statistics(gather: Callable[[Any], list[Any]]) -> list[str]:
    """Three rounds of it, as a training loop does; a failed one is logged and training goes on."""
    log = []
    for turn in range(3):
        try:
            log.append(f"total {sum(gather(turn * 10 + dist.get_rank()))}")
        except ValueError as error:
            log.append(f"{type(error).__name__}: {error}")
    return log


def show(gather: Callable[[Any], list[Any]]) -> None:
    with rankdrill.World(4) as world:
        outcome = world.run(log_statistics, gather, plan=rankdrill.Plan.parse(FAULT))
    for rank in outcome.ranks:
        print(f"  {rank}" + "".join(f"\n    {line}" for line in rank.value or ()))
    print(f"  verdict: {outcome.verdict}")


def main() -> None:
    print("by hand:")
    show(all_gather_list_by_hand)
    print("from rankdrill.gathers import all_gather_list:")
    show(all_gather_list)


if __name__ == "__main__":
    main()
