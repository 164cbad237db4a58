"""A job with torch's debug server: `python -m tests.explain.served_job PORT DIRECTORY`, with the launcher's variables.

The rank 2 does not come to a barrier.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

ABSENT, TURN = 2, 3
FOREVER_S = 1000.0


def main(port: int, directory: str) -> None:
    from torch.distributed.debug import start_debug_server

    dist.init_process_group("gloo")
    start_debug_server(port=port, dump_dir=directory, dump_interval=1.0)
    for turn in range(5):
        dist.all_reduce(torch.ones(4))
        if (dist.get_rank(), turn) == (ABSENT, TURN):
            time.sleep(FOREVER_S)  # absent
        dist.barrier()  # waiting


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
