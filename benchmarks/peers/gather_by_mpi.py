"""Ways of mpi4py with one payload, under `mpirun`; rank 0 prints [ms, CPU s, growth] of each repetition, by way.

mpirun -n 4 python benchmarks/peers/gather_by_mpi.py PAYLOAD REPETITIONS SECONDS [mpi] [mpi-pkl5]
"""

from __future__ import annotations

import json
import sys
from dataclasses import astuple
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # a script knows its own folder only

from benchmarks.gathering.on_rank import Sample, compare, row_of, take
from benchmarks.gathering.payloads import PAYLOADS
from benchmarks.gathering.results import repetitions
from benchmarks.gathering.setting import Setting
from mpi4py import MPI
from mpi4py.util import pkl5


def samples_of(communicator: Any, payload_key: str, count: int, budget_s: float) -> list[Sample]:
    """A call whose result is compared, then as many as wanted and affordable."""
    payload = PAYLOADS[payload_key]
    setting = Setting(communicator.Get_rank(), communicator.Get_size(), payload, "", "")
    mine = payload.make(setting.rank)
    first, values = take(lambda: list(communicator.allgather(mine)), 1, communicator.Barrier)
    compare(values, payload, setting, first_only=False, flat=False)
    del values
    slowest = max(communicator.allgather(first[0].seconds))
    affordable = max(1, min(count, int(budget_s / slowest)))
    row = row_of(payload, check=False)
    return take(lambda: list(communicator.allgather(mine)), affordable, communicator.Barrier, row)[0]


def main() -> None:
    payload_key, count, budget_s, *ways = sys.argv[1:]
    world = MPI.COMM_WORLD
    found = {}
    for way in ways:
        communicator = pkl5.Intracomm(world) if way == "mpi-pkl5" else world
        by_rank = world.gather(samples_of(communicator, payload_key, int(count), float(budget_s)))
        if by_rank:
            found[way] = [astuple(each) for each in repetitions(by_rank)]
    if world.Get_rank() == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
