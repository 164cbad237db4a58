"""What worlds cost, beside torch's own ways to start ranks, measured side by side in one invocation.

    python benchmarks/worlds.py [--quick] [--json FILE]

Torch's harnesses need `expecttest`, which torch does not install; without it they are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from benchmarks.sessions import CONTINUOUS, RANKDRILL, test_times
from rich.console import Console
from rich.progress import track
from rich.table import Table

from rankdrill import World
from rankdrill.worlds import start_template

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


PEERS = Path(__file__).parent / "peers"
PEER_BOUND_S = 900.0
RANKS = 4
MANY = {64: 900.0, 256: 6000.0}  # ranks: target


@dataclass(frozen=True)
class Figure:
    """One measurement: all its repetitions in milliseconds, and the target, if there is one."""

    name: str
    ms: tuple[float, ...]
    target_ms: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.ms)


@dataclass(frozen=True)
class Peer:
    """The same thing done by torch, and which figure it stands beside."""

    name: str
    beside: str
    script: str
    arguments: tuple[str, ...]
    repetitions: int
    skip_first: bool = False


FRESH, WARM, EMPTY = "fresh world, first collective", "warm run, overhead on an all_reduce", "warm run, empty body"
TEST, KNOWN, OVER = "a further test of a pytest session", "death known", "death: run over"
FEW = (
    Peer("MultiProcessTestCase", TEST, "start_by_test_case.py", (), 3),
    Peer(
        "MultiProcContinuousTest under unittest, each but the first",
        TEST,
        "start_continuous.py",
        (),
        20,
        skip_first=True,
    ),
    Peer("MultiProcContinuousTest, the first", FRESH, "start_continuous.py", (), 1),
    Peer("torch.multiprocessing.spawn", FRESH, "start_by_spawn.py", (), 3),
    Peer("MultiProcessTestCase, to its end", OVER, "start_by_test_case.py", ("death",), 2),
)


def all_reduce() -> float:
    """The trivial body; returns the seconds it took on this rank."""
    began = time.monotonic()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert float(tensor) == dist.get_world_size()
    return time.monotonic() - began


def nothing() -> None:
    """The empty body."""


def die() -> None:
    dist.barrier()
    if dist.get_rank() == RANKS - 1:
        print(time.monotonic_ns())
        os._exit(1)
    dist.barrier()


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return (time.monotonic() - began) * 1e3


def fresh(repetitions: int, size: int = RANKS, name: str = FRESH, target: float | None = 90.0) -> Figure:
    times = []
    with World(size) as world:
        for _ in range(repetitions):
            world.discard()
            times.append(timed(lambda: world.run(all_reduce, deadline=300).unwrap()))
            if size in MANY:
                times[-1] += timed(world.discard)
    return Figure(name, tuple(times), target)


def large(repetitions: int, size: int) -> Figure:
    return fresh(repetitions, size, f"{size} ranks: start, all_reduce, end", MANY[size])


def warm(repetitions: int) -> tuple[Figure, Figure]:
    overhead, empty = [], []
    with World(RANKS) as world:
        world.run(all_reduce).unwrap()
        for _ in range(repetitions):
            began = time.monotonic()
            inside = world.run(all_reduce).unwrap()
            overhead.append((time.monotonic() - began - max(inside)) * 1e3)
            empty.append(timed(lambda: world.run(nothing).unwrap()))
    return Figure(WARM, tuple(overhead), 2.0), Figure(EMPTY, tuple(empty), 2.0)


def deaths(repetitions: int) -> tuple[Figure, Figure]:
    known, over = [], []
    with World(RANKS) as world:
        for _ in range(repetitions):
            outcome = world.run(die)
            ended = time.monotonic_ns()
            died = int(outcome.ranks[RANKS - 1].stdout)
            known.append((outcome.ranks[RANKS - 1].at_ns - died) / 1e6)
            over.append((ended - died) / 1e6)
    return Figure(KNOWN, tuple(known), 50.0), Figure(OVER, tuple(over), 1000.0)


def further_tests(count: int, rounds: int = 3) -> tuple[Figure, Figure]:
    """Tests of pytest sessions whose ranks are up, rankdrill's and torch's in turns: both sessions whole."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        ours.extend(test_times(RANKDRILL, RANKS, count))
        theirs.extend(test_times(CONTINUOUS, RANKS, count))
    target = 0.9 * statistics.median(theirs)
    return Figure(TEST, tuple(ours), target), Figure(f"MultiProcContinuousTest, {TEST}", tuple(theirs))


def run_peer(peer: Peer) -> Figure | str:
    """The peer's figure, or why there is none."""
    count = peer.repetitions + peer.skip_first
    command = [sys.executable, "-W", "ignore", str(PEERS / peer.script), str(count), *peer.arguments]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PEER_BOUND_S)
    except subprocess.TimeoutExpired:
        return f"did not end within {PEER_BOUND_S:.0f} s"
    lines = [line for line in ran.stdout.splitlines() if line.startswith("[")]
    if ran.returncode or not lines:
        return (ran.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    seconds = json.loads(lines[-1])[1 if peer.skip_first else 0 :]
    return Figure(peer.name, tuple(second * 1e3 for second in seconds))


def show(figures: Sequence[Figure], peers: Sequence[tuple[Peer, Figure | str]]) -> Table:
    table = Table(title=f"{RANKS} ranks, gloo, {os.cpu_count()} cores; milliseconds")
    for column in ("", "median", "min", "max", "n", "target", "beside"):
        table.add_column(column, justify="left" if column in ("", "beside") else "right")
    medians = {figure.name: figure.median for figure in figures}
    for figure in figures:
        target = (
            ""
            if figure.target_ms is None
            else f"{'≤' if figure.median <= figure.target_ms else '>'} {figure.target_ms:.3g}"
        )
        table.add_row(*_row(figure), target, "")
    table.add_section()
    for peer, found in peers:
        if isinstance(found, str):
            table.add_row(peer.name, found, "", "", "", "", "")
        else:
            table.add_row(*_row(found), "", f"{found.median / medians[peer.beside]:.1f} x {peer.beside}")
    return table


def _row(figure: Figure) -> tuple[str, ...]:
    shown = (f"{value:.1f}" for value in (figure.median, min(figure.ms), max(figure.ms)))
    return figure.name, *shown, str(len(figure.ms))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions, and no peer that takes seconds")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every repetition to FILE")
    chosen = parser.parse_args()
    start_template()
    with World(RANKS) as world:
        world.run(nothing).unwrap()  # the template is up from here on
    many = 5 if chosen.quick else 20
    jobs: list[Callable[[], Figure | tuple[Figure, ...]]] = [
        lambda: fresh(many),
        lambda: warm(10 * many),
        lambda: further_tests(5 * many, 1 if chosen.quick else 3),
        lambda: deaths(many),
        *(partial(large, 1 if chosen.quick else 5, size) for size in MANY),
    ]
    figures: list[Figure] = []
    console = Console(stderr=True)
    for job in track(jobs, "rankdrill", console=console):
        done = job()
        figures.extend((done,) if isinstance(done, Figure) else done)
    peers = [] if chosen.quick else [(peer, run_peer(peer)) for peer in track(FEW, "peers", console=console)]
    Console(width=140).print(show(figures, peers))
    if chosen.json:
        measured = [
            asdict(figure) for figure in (*figures, *(found for _, found in peers if isinstance(found, Figure)))
        ]
        machine = {"cores": os.cpu_count(), "torch": torch.__version__, "python": platform.python_version()}
        chosen.json.write_text(json.dumps({"machine": machine, "figures": measured}, indent=1) + "\n")


if __name__ == "__main__":
    main()
