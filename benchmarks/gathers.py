"""What rankdrill's gathers cost beside torch's, the hand-written ones and what the machine itself allows."""

from __future__ import annotations

import importlib.util
import json
import platform
import secrets
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

# As a script this file knows its own folder only; its parts, which the ranks import too, lie in the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gathering import mpi, rounds, tables
from benchmarks.gathering.document import BEGIN, END, page_with
from benchmarks.gathering.payloads import PAYLOADS
from benchmarks.gathering.results import Results
from benchmarks.gathering.rounds import Effort, Place
from benchmarks.gathering.targets import Target, Verdict, targets
from benchmarks.gathering.ways import WAYS
from benchmarks.machine import machine

from rankdrill import World

SHARED_MEMORY = Path("/dev/shm")
QUICK = Effort(small=10, large=3, budget_s=4.0)
FEWEST, MOST = 2, 64

HELP = """What rankdrill's gathers cost, beside torch's all_gather_object and gather_object, the hand-written gathers
they replace (benchmarks/originals), the bare transfer of the same bytes, MPI where it is installed, and the copy limit:
what it takes all ranks together to copy what arrives into fresh memory.

All ways run in one session on the same ranks, in rounds, after one call each whose result is compared with what should
arrive; the ranks do not write down their steps meanwhile. The time of a call is that of its slowest rank after a
barrier, for 1 MB the mean of 5 calls in a row, below of 20; CPU seconds are summed over all ranks and their threads;
growth is the peak of resident memory during the call above what was resident before, on the worst rank; all three are
medians over the repetitions. Growth counts a page of shared memory once it is touched, so a way that maps what arrives
shows little before its reader reads. Only ratios within one table mean something on a busy machine.

\b
Examples:
  python benchmarks/gathers.py                                      everything; a quarter of an hour or more on 2 cores
  python benchmarks/gathers.py --quick                              a first look, in some minutes
  python benchmarks/gathers.py --payload "64 MB" --path padded --path original-padded
  python benchmarks/gathers.py --ranks 4,8,16,32 --path objects --payload "100 B" --payload "10 kB" --payload "1 MB"
  python benchmarks/gathers.py --json results.json --plot results.png --check

\b
Paths, by the name that --path takes:
"""
NAMES = {key: f"{way.name} ({way.family})" for key, way in WAYS.items()} | mpi.WAYS
HELP += "".join(f"  {key:<{max(map(len, NAMES))}}  {name}\n" for key, name in NAMES.items())


def _sizes(context: click.Context, option: click.Parameter, given: str) -> list[int]:
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in given.split(",")]
    if not all(FEWEST <= size <= MOST for size in sizes):
        raise click.BadParameter(f"{given}: give numbers from {FEWEST} to {MOST}, separated by commas")
    return list(dict.fromkeys(sizes))


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--payload", "payloads", multiple=True, type=click.Choice(list(PAYLOADS)), help="Only this; repeatable.")
@click.option(
    "--path",
    "paths",
    multiple=True,
    type=click.Choice(list(NAMES)),
    metavar="NAME",
    help="Only this way to gather, beside the two that ratios need; repeatable. Ratios beside an original need it too.",
)
@click.option(
    "--ranks",
    "sizes",
    default="4",
    show_default=True,
    metavar="N[,N...]",
    callback=_sizes,
    help="How many; several, one after the other.",
)
@click.option("--quick", is_flag=True, help="Few repetitions.")
@click.option("--slow", is_flag=True, help="Fixed buffers above 1 MB too: 15 seconds a call and more.")
@click.option("--budget", type=click.FloatRange(0.1), help="Seconds of repetitions per way and payload.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every repetition.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw a picture; needs matplotlib.")
@click.option(
    "--document", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Write the table into this page."
)
@click.option("--check", is_flag=True, help="Exit with 1 if a target is missed.")
def main(
    payloads: tuple[str, ...],
    paths: tuple[str, ...],
    sizes: list[int],
    quick: bool,
    slow: bool,
    budget: float | None,
    json_file: Path | None,
    plot: Path | None,
    document: Path | None,
    check: bool,
) -> None:
    if plot and len(sizes) > 1:
        raise click.UsageError("--plot draws one number of ranks: give one to --ranks")
    if plot and importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib, which is not installed")
    if document and BEGIN not in document.read_text():
        raise click.UsageError(f"{document} has no place for the table: mark it by {BEGIN!r} and {END!r}")
    chosen = QUICK if quick else Effort()
    effort = Effort(chosen.small, chosen.large, budget or chosen.budget_s, slow)
    wanted = [key for key in PAYLOADS if not payloads or key in payloads]
    keys = [key for key in (*WAYS, *mpi.WAYS) if not paths or key in paths or (key in WAYS and WAYS[key].baseline)]
    signal.signal(signal.SIGTERM, _end)
    worlds: list[tuple[Results, list[Target]]] = []
    for size in sizes:
        results = _measure_all(wanted, keys, size, effort)
        worlds.append((results, targets(results)))
        _show(*worlds[-1])
    if json_file:
        json_file.write_text(json.dumps(_as_json(worlds, effort), indent=1) + "\n")
    if plot:
        from benchmarks.gathering.plot import draw  # nothing else needs matplotlib

        draw(worlds[0][0], plot)
    if document:
        document.write_text(page_with(document.read_text(), *worlds[0]))
    missed = sum(target.verdict is Verdict.MISSED for _, found in worlds for target in found)
    if check and missed:
        raise SystemExit(1)


def _end(number: int, frame: FrameType | None) -> None:
    """Leave by an exception, so that files and segments are removed on the way."""
    raise SystemExit(128 + number)


def _measure_all(payloads: list[str], keys: list[str], ranks: int, effort: Effort) -> Results:
    results = Results(ranks)
    prefix = f"gathers-bench-{secrets.token_hex(6)}-"
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gathers-bench-") as directory,
            Progress(*columns, console=Console(stderr=True)) as progress,
            World(ranks) as world,
        ):
            task = progress.add_task("starting", total=len(payloads))
            for number, key in enumerate(payloads):

                def tell(what: str, part: float, number: int = number) -> None:
                    progress.update(task, description=what, completed=number + part)

                payload = PAYLOADS[key]
                ways = [WAYS[each] for each in keys if each in WAYS]
                for cell in rounds.run_payload(world, payload, ways, effort, Place(directory, prefix), tell):
                    results.add(cell)
                for cell in mpi.run_payload(ranks, payload, [each for each in keys if each in mpi.WAYS], effort, tell):
                    results.add(cell)
            progress.update(task, description="done", completed=len(payloads))
    finally:
        for left in SHARED_MEMORY.glob(f"{prefix}*"):  # of a rank that died between creating and unlinking
            with suppress(FileNotFoundError):
                left.unlink()
    return results


def _show(results: Results, found: list[Target]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    for payload in results.payloads():
        console.print(tables.payload_table(results, payload), "")
    known = [target for target in found if target.verdict is not Verdict.UNKNOWN]
    if known:
        console.print(tables.target_table(known, results.size))
    count = {verdict: sum(target.verdict is verdict for target in found) for verdict in Verdict}
    console.print(", ".join(f"{number} {verdict}" for verdict, number in count.items()))


def _as_json(worlds: list[tuple[Results, list[Target]]], effort: Effort) -> dict[str, object]:
    return {
        "machine": machine(torch=torch.__version__, kernel=platform.release()),
        "effort": asdict(effort),
        "worlds": [
            {"ranks": results.size, "cells": results.as_json(), "targets": [asdict(target) for target in found]}
            for results, found in worlds
        ],
    }


if __name__ == "__main__":
    main()
