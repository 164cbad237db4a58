"""The ranks of `test_ranks_that_no_world_started`: they fail in every way and leave what came of it in a file each."""

from __future__ import annotations

import datetime
import os
import pathlib
import pickle
import sys
import traceback

import torch.distributed as dist

from rankdrill.gathers.agreement.channel import LINE_VARIABLE
from tests.gathers.all_ways import is_local
from tests.gathers.failures import RANKS, every_failure

PATHS = ("all_gather", "gather_object/group_dst")


def main(directory: pathlib.Path, rank: int) -> None:
    wait = datetime.timedelta(seconds=60)
    meeting = dist.FileStore(str(directory / "meeting"), len(RANKS))  # type: ignore[attr-defined]
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        meeting.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(meeting.get("port")), timeout=wait)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=len(RANKS), timeout=wait)
    told = {}
    for line in ("local", "gloo"):
        os.environ[LINE_VARIABLE] = line
        group = dist.new_group(RANKS)
        for name in PATHS:
            told[line, name] = every_failure(name, str(directory / "files"), group)
        assert is_local(group) == (line == "local")
    (directory / f"told-{rank}").write_bytes(pickle.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


def fork(directory: pathlib.Path, rank: int) -> int:
    """The process of a rank; it imports nothing again."""
    child = os.fork()
    if child:
        return child
    try:
        main(directory, rank)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    children = [fork(pathlib.Path(sys.argv[1]), rank) for rank in RANKS]
    statuses = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(any(statuses))
