"""What watching costs each collective: bare gloo, with the ledger, with ledger and contracts, in turns in one run.

Beside them stands what torch's own checks cost, ``TORCH_DISTRIBUTED_DEBUG=DETAIL``.

    python benchmarks/watch.py [--ranks 2] [--rounds 40] [--between 0 200] [--json FILE]

Every round measures all ways one after the other, `CALLS` calls each, so that what else the machine does falls on all
of them alike. A way's time is the median over all its calls on rank 0.

Back to back, a call finds gloo's own threads still awake from the one before; whatever comes between two calls, be it
the watch or the program's own work, lets them fall asleep, and waking them is a part of what the call then takes.
`--between` has each rank compute for so many microseconds before each call, as a program does.

``RANKDRILL_NATIVE=0`` measures the watch in Python where it was built in C.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch.distributed import DebugLevel, get_debug_level, set_debug_level  # type: ignore[attr-defined]

from rankdrill import World
from rankdrill.native import lane
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

CALLS = 50
ELEMENTS = {"1 element": 1, "1 MiB": 1 << 18}
BARE, LEDGER, CONTRACTS, DETAIL = "bare gloo", "ledger", "ledger and contracts", "DETAIL"
WAYS = (BARE, LEDGER, CONTRACTS, DETAIL)
DEADLINE_S = 600.0


class Taken(NamedTuple):
    """What one call took."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Figure:
    """The medians of one way, in microseconds, and how its time compares with that of bare gloo."""

    ranks: int
    tensor: str
    between_us: int
    way: str
    us: float
    over_bare: float
    cpu_us: float


def measured(context: RankContext, elements: int, between: float, rounds: int) -> dict[str, list[Taken]]:
    """On a rank: what each call took, by way."""
    tensor = torch.zeros(elements)
    checked = group_with_torchs_checks()
    found: dict[str, list[Taken]] = {way: [] for way in WAYS}
    for turn in range(rounds + 1):  # the first warms up
        for way in WAYS:
            with taken(way, context, checked) as group:
                calls = [timed(tensor, group, between) for _ in range(CALLS)]
            if turn:
                found[way] += calls
    return found


def group_with_torchs_checks() -> Any:
    """A group of all ranks as ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` makes it, which nobody else watches."""
    before = get_debug_level()
    set_debug_level(DebugLevel.DETAIL)
    try:
        group: Any = dist.new_group()
    finally:
        set_debug_level(before)
    return group.inner


@contextmanager
def taken(way: str, context: RankContext, checked: Any) -> Iterator[Any]:
    """The group to call so, and the rank's boundary as it is to be for it."""
    drilled = context.group
    watch = context.boundary.watch
    context.boundary.watch = watch if way == CONTRACTS else None
    try:
        yield {BARE: drilled.inner, DETAIL: checked}.get(way, drilled)
    finally:
        context.boundary.watch = watch


def timed(tensor: torch.Tensor, group: Any, between: float) -> Taken:
    compute_until = time.perf_counter() + between
    while time.perf_counter() < compute_until:
        pass
    worked = time.thread_time()
    began = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    seconds = time.perf_counter() - began
    return Taken(seconds, time.thread_time() - worked)


def figures(ranks: int, betweens: Sequence[int], rounds: int) -> Iterator[Figure]:
    with World(ranks) as world:
        for between, (name, elements) in itertools.product(betweens, ELEMENTS.items()):
            job = Job(measured, (elements, between * 1e-6, rounds), with_context=True)
            calls = world.run_job(job, deadline=DEADLINE_S).unwrap()[0]
            medians = {way: statistics.median(call.seconds for call in calls[way]) for way in WAYS}
            for way in WAYS:
                cpu = statistics.median(call.cpu_seconds for call in calls[way])
                over = medians[way] / medians[BARE] - 1
                yield Figure(ranks, name, between, way, medians[way] * 1e6, over, cpu * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--between", type=int, nargs="+", default=[0, 200], metavar="US", help="of computing, each call"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    found = [figure for ranks in asked.ranks for figure in figures(ranks, asked.between, asked.rounds)]
    columns = "ranks", "all_reduce of", "between, µs", "way", "median µs", "over bare", "CPU µs"
    table = Table(*columns, title=f"watched in {lane()}")
    for one in found:
        asked_of = str(one.ranks), one.tensor, str(one.between_us), one.way
        table.add_row(*asked_of, f"{one.us:.1f}", f"{one.over_bare:+.1%}", f"{one.cpu_us:.1f}")
    Console().print(table)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
