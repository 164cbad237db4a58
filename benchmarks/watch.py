"""What watching costs each collective: bare gloo, with the ledger, with ledger and contracts, in turns in one run.

Beside them stands what torch's own checks cost, ``TORCH_DISTRIBUTED_DEBUG=DETAIL``.

    python benchmarks/watch.py [--ranks 2] [--rounds 40] [--between 0 200] [--calls all_reduce async ddp]
                               [--of "1 element"] [--without-detail] [--json FILE]

Every round measures all ways one after the other, each round beginning with another one, so that what else the machine
does falls on all of them alike. A way's time is the median over all its calls on rank 0; what it adds to bare gloo's is
compared round by round, median with median, of which the median is told: so a round in which the machine was busy
counts as one, and no more. Beside it stands between which two the median of all such rounds lies, at 95 %, and what
bare gloo itself, measured once more in each round, adds to bare gloo: what is within that is nothing.

``async`` is ``dist.all_reduce(…, async_op=True)`` and ``wait()`` right after it; ``ddp`` is one forward and backward
pass of `LAYERS` small layers with a bucket for each parameter, which is all communication and hardly any computing.

Back to back, a call finds gloo's own threads still awake from the one before; whatever comes between two calls, be it
the watch or the program's own work, lets them fall asleep, and waking them is a part of what the call then takes.
`--between` has each rank compute for so many microseconds before each call, as a program does.

``RANKDRILL_NATIVE=0`` measures the watch in Python where it was built in C.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch.distributed import DebugLevel, get_debug_level, set_debug_level  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from rankdrill import World
from rankdrill.native import lane
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

CALLS = {"all_reduce": 50, "async": 50, "ddp": 5}
"""What is measured, and how often in each round."""
ELEMENTS = {"1 element": 1, "1 MiB": 1 << 18}
LAYERS, WIDTH = 8, 16
BUCKET_MB = 1e-6  # less than any parameter takes
BARE, LEDGER, CONTRACTS, DETAIL = "bare gloo", "ledger", "ledger and contracts", "DETAIL"
AGAIN = "bare gloo again"
WAYS = (BARE, LEDGER, CONTRACTS, AGAIN, DETAIL)
DEADLINE_S = 600.0
Call: TypeAlias = Callable[[Any], object]
"""Makes the call on a group."""


class Taken(NamedTuple):
    """What one call took."""

    seconds: float
    cpu_seconds: float


Rounds: TypeAlias = dict[str, list[list[Taken]]]
"""By way, round by round."""


@dataclass(frozen=True)
class Figure:
    """The medians of one way, in microseconds, and how its time compares with that of bare gloo."""

    ranks: int
    call: str
    tensor: str
    between_us: int
    way: str
    us: float
    over_bare: float
    at_least: float
    at_most: float
    cpu_us: float


def measured(
    context: RankContext, ways: Sequence[str], what: str, elements: int, between: float, rounds: int
) -> Rounds:
    """On a rank: what each call took."""
    checked = group_with_torchs_checks()
    calls = {way: call_of(what, elements) for way in ways}
    found: Rounds = {way: [] for way in ways}
    for turn in range(rounds + 1):  # the first warms up
        first = turn % len(ways)
        for way in (*ways[first:], *ways[:first]):
            with taken(way, context, checked) as group:
                times = [timed(calls[way], group, between) for _ in range(CALLS[what])]
            if turn:
                found[way].append(times)
    return found


def call_of(what: str, elements: int) -> Call:
    tensor = torch.zeros(elements)
    if what == "all_reduce":
        return lambda group: dist.all_reduce(tensor, group=group)
    if what == "async":
        return lambda group: dist.all_reduce(tensor, group=group, async_op=True).wait()
    return Training()


class Training:
    """Calls are steps of one model, which is wrapped at the first of them."""

    def __init__(self) -> None:
        self._model: Any = None
        self._given = torch.ones(2, WIDTH)

    def __call__(self, group: Any) -> None:
        if self._model is None:
            layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
            model = torch.nn.Sequential(*layers)
            with without_logged_surroundings():
                self._model = DistributedDataParallel(model, process_group=group, bucket_cap_mb=BUCKET_MB)
        self._model(self._given).sum().backward()


@contextmanager
def without_logged_surroundings() -> Iterator[None]:
    """Have DDP's logger not ask for the environment: on gloo under DETAIL that ends the process (torch 2.13)."""
    logger: Any = dist.Logger  # type: ignore[attr-defined]
    original = logger.set_construction_data_and_log
    logger.set_construction_data_and_log = lambda *_: None
    try:
        yield
    finally:
        logger.set_construction_data_and_log = original


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
    drilled, boundary = context.group, context.boundary
    watch, handles = boundary.watch, boundary.handles
    if way != CONTRACTS:  # as with `contracts=False`
        boundary.watch = boundary.handles = None
    try:
        yield {BARE: drilled.inner, AGAIN: drilled.inner, DETAIL: checked}.get(way, drilled)
    finally:
        boundary.watch, boundary.handles = watch, handles


def timed(call: Call, group: Any, between: float) -> Taken:
    compute_until = time.perf_counter() + between
    while time.perf_counter() < compute_until:
        pass
    worked = time.thread_time()
    began = time.perf_counter()
    call(group)
    seconds = time.perf_counter() - began
    return Taken(seconds, time.thread_time() - worked)


def figures(asked: argparse.Namespace, ranks: int) -> Iterator[Figure]:
    sizes = {name: elements for name, elements in ELEMENTS.items() if name in asked.of}
    ways = WAYS[:-1] if asked.without_detail else WAYS
    with World(ranks) as world:
        for what, between, (name, elements) in itertools.product(asked.calls, asked.between, sizes.items()):
            if what == "ddp" and elements > 1:
                continue
            job = Job(measured, (ways, what, elements, between * 1e-6, asked.rounds), with_context=True)
            found = world.run_job(job, deadline=DEADLINE_S).unwrap()[0]
            for way in ways:
                taken = [call for times in found[way] for call in times]
                us, cpu_us = (statistics.median(column) * 1e6 for column in zip(*taken, strict=True))
                tensor = f"{2 * LAYERS} buckets" if what == "ddp" else name
                yield Figure(ranks, what, tensor, between, way, us, *over_bare(found, way), cpu_us)


def over_bare(found: Rounds, way: str) -> tuple[float, float, float]:
    """What a round adds to bare gloo's: the median, and between which two the median of all rounds lies, at 95 %.

    These two are the ratios of such ranks among the rounds' that one half of all is below them in 1 of 40 cases
    (binomial, by its normal approximation), whatever the times are distributed like.
    """
    pairs = zip(found[way], found[BARE], strict=True)
    ratios = sorted(median_of(times) / median_of(bare) - 1 for times, bare in pairs)
    below = max(0, math.floor(len(ratios) / 2 - 0.98 * math.sqrt(len(ratios))))
    return statistics.median(ratios), ratios[below], ratios[-1 - below]


def median_of(times: Sequence[Taken]) -> float:
    return statistics.median(call.seconds for call in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--between", type=int, nargs="+", default=[0, 200], metavar="US", help="of computing, each call"
    )
    parser.add_argument("--calls", nargs="+", default=list(CALLS), choices=list(CALLS))
    parser.add_argument("--of", nargs="+", default=list(ELEMENTS), choices=list(ELEMENTS))
    parser.add_argument("--without-detail", action="store_true", help="which takes most of the time")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    found = [each for ranks in asked.ranks for each in figures(asked, ranks)]
    columns = "ranks", "call", "of", "between, µs", "way", "median µs", "over bare", "at 95 %", "CPU µs"
    table = Table(*columns, title=f"watched in {lane()}")
    for one in found:
        asked_of = str(one.ranks), one.call, one.tensor, str(one.between_us), one.way
        within = f"{one.at_least:+.1%} to {one.at_most:+.1%}"
        table.add_row(*asked_of, f"{one.us:.1f}", f"{one.over_bare:+.1%}", within, f"{one.cpu_us:.1f}")
    Console().print(table)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
