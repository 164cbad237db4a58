"""What recording costs a collective: `rankdrill.record` beside bare gloo, in turns in one run.

    python benchmarks/record.py [--ranks 2] [--rounds 60] [--between 0 200] [--watched] [--json FILE]

The ranks are plain processes, which record themselves as those of a job do. Every round measures all ways one after the
other, `CALLS` calls each, so that what else the machine does falls on all alike; which is first changes from round to
round. What is told is the median of all rounds, in each of which medians are compared.

The third way is bare gloo behind a pause of `PAUSE_S`, about what recording takes: what any code before a call would
cost, whatever it does. Processor time is that of rank 0: of all its threads, and of the one that calls.
`--between` has each rank compute for so many microseconds before each call: see benchmarks/watch.py. With `--watched` a
watchdog looks on (`hang_after=`), and the last column is how much of one processor it took.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

import rankdrill
from rankdrill.native import lane

CALLS = 50
HANG_AFTER = 300.0
ELEMENTS = {"1 element": 1, "1 MiB": 1 << 18}
BARE, RECORDED, PAUSED = "bare gloo", "recorded", "bare gloo, paused"
WAYS = BARE, RECORDED, PAUSED
PAUSE_S = 2.6e-6


@dataclass(frozen=True)
class Figure:
    """Medians in microseconds over all calls on rank 0, and how they compare; of processor time, medians of rounds."""

    ranks: int
    tensor: str
    between_us: int
    bare_us: float
    recorded_us: float
    over_bare: float
    paused_over_bare: float
    more_cpu_us: float
    more_thread_cpu_us: float
    bare_cpu_us: float
    watchdog: float | None = None


Measured: TypeAlias = tuple[str, int, str, list[float], float, float]
"""Of one round: tensor, pause and way, what each call took, and a call's processor time, of all threads and of its."""


def measured(rank: int, size: int, place: str, betweens: Sequence[int], rounds: int, watched: bool) -> None:
    """On a rank: what each call took, by tensor, pause and way; rank 0 writes it down."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    rankdrill.record(Path(place) / "record", hang_after=HANG_AFTER if watched else None)
    store = dist.FileStore(str(Path(place) / "store"), size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    whole: Any = dist.group.WORLD
    groups = {BARE: whole.inner, RECORDED: whole, PAUSED: whole.inner}
    found: list[Measured] = []
    for between in betweens:
        for name, elements in ELEMENTS.items():
            tensor = torch.zeros(elements)
            for turn in range(rounds + 1):  # the first warms up
                for way in list(groups)[:: 1 if turn % 2 else -1]:
                    pause = between * 1e-6 + (PAUSE_S if way == PAUSED else 0.0)
                    began = time.process_time(), time.thread_time()
                    calls = [timed(tensor, groups[way], pause) for _ in range(CALLS)]
                    cpu, own = (time.process_time() - began[0]) / CALLS, (time.thread_time() - began[1]) / CALLS
                    found += [(name, between, way, calls, cpu, own)] if turn else []
    if rank == 0:
        (Path(place) / "found.json").write_text(json.dumps([found, share_of_watchdog(Path(place))]))
    dist.barrier()
    dist.destroy_process_group()


def share_of_watchdog(place: Path) -> float | None:
    """Of one processor, since it was started; None where nobody watches."""
    for path in (place / "record").glob("*.watchdog"):
        process = psutil.Process(json.loads(path.read_text())["pid"])
        taken = process.cpu_times()
        return float((taken.user + taken.system) / (time.time() - process.create_time()))
    return None


def timed(tensor: torch.Tensor, group: Any, between: float) -> float:
    until = time.perf_counter() + between
    while time.perf_counter() < until:
        pass
    began = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    return time.perf_counter() - began


def figures(ranks: int, betweens: Sequence[int], rounds: int, watched: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as place:
        context = get_context("spawn")
        started = [
            context.Process(target=measured, args=(rank, ranks, place, betweens, rounds, watched))
            for rank in range(ranks)
        ]
        for each in started:
            each.start()
        for each in started:
            each.join()
        rounds_, watchdog = json.loads((Path(place) / "found.json").read_text())
    found = []
    for between in betweens:
        for name in ELEMENTS:
            here = [one for one in rounds_ if one[:2] == [name, between]]
            took = {way: statistics.median(chain(*(one[3] for one in here if one[2] == way))) for way in WAYS}
            cpu, own = (
                {way: statistics.median(one[at] for one in here if one[2] == way) for way in WAYS} for at in (4, 5)
            )
            bare, recorded = took[BARE], took[RECORDED]
            over = {way: _over_bare(here, way) for way in (RECORDED, PAUSED)}
            more = (cpu[RECORDED] - cpu[BARE]) * 1e6, (own[RECORDED] - own[BARE]) * 1e6
            rates = over[RECORDED], over[PAUSED]
            times = bare * 1e6, recorded * 1e6
            found.append(Figure(ranks, name, between, *times, *rates, *more, cpu[BARE] * 1e6 - between, watchdog))
    return found


def _over_bare(measured: Sequence[Measured], way: str) -> float:
    """Round by round, median with median: so a round in which the machine was busy counts as one, and no more."""
    rounds = {each: [statistics.median(one[3]) for one in measured if one[2] == each] for each in (BARE, way)}
    return statistics.median(took / bare for took, bare in zip(rounds[way], rounds[BARE], strict=True)) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--between", type=int, nargs="+", default=[0, 200], metavar="US")
    parser.add_argument("--watched", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    found = [figure for ranks in asked.ranks for figure in figures(ranks, asked.between, asked.rounds, asked.watched)]
    table = Table(
        "ranks",
        "all_reduce of",
        "between, µs",
        "bare, µs",
        "recorded, µs",
        "over bare",
        "paused, over bare",
        "more CPU, µs",
        "of its thread",
        "of",
        "watchdog",
        title=lane(),
    )
    for one in found:
        table.add_row(
            str(one.ranks),
            one.tensor,
            str(one.between_us),
            f"{one.bare_us:.1f}",
            f"{one.recorded_us:.1f}",
            f"{one.over_bare:+.1%}",
            f"{one.paused_over_bare:+.1%}",
            f"{one.more_cpu_us:+.1f}",
            f"{one.more_thread_cpu_us:+.1f}",
            f"{one.bare_cpu_us:.0f}",
            "" if one.watchdog is None else f"{one.watchdog:.2%}",
        )
    Console().print(table)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
