"""How long explaining the dumps of a large job takes: `rankdrill explain` beside torch's own analyzer."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import click
import psutil
from benchmarks.explaining.jobs import write_job
from rich.console import Console
from rich.table import Table

OURS, TORCHS = "rankdrill explain", "torch's fr_trace"
WANTED_S, WANTED_MB = 2.0, 300.0
LARGE_S = 15.0
LOOK_S = 0.02
MIB = 1 << 20
HELP = """How long, and in how much memory, flight recorder dumps of a large job are explained, one rank of which has
left a call out: `rankdrill explain` beside `python -m torch.distributed.flight_recorder.fr_trace`, on the same files.

Memory is the highest sum over all processes of a command of what each has for itself and its share of the rest (PSS),
looked at every 20 ms. Both start from nothing: imports count.

\b
Examples:
  python benchmarks/explain.py
  python benchmarks/explain.py --ranks 64 --entries 2000 --groups 1
  python benchmarks/explain.py --large --check         10 000 ranks of 200 entries, which torch's is not asked for
"""


@dataclass(frozen=True)
class Figure:
    """What one run took."""

    tool: str
    seconds: float
    cpu_seconds: float
    megabytes: float
    exit_code: int
    said: str


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--ranks", type=click.IntRange(4), default=256, show_default=True, help="How many ranks left a dump.")
@click.option("--entries", type=click.IntRange(2), default=2000, show_default=True, help="Entries of each rank.")
@click.option("--groups", type=click.IntRange(1), default=3, show_default=True, help="Groups, of all ranks each.")
@click.option("--large", is_flag=True, help="10 000 ranks of 200 entries, ours alone.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, help="Runs of each, in turns.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every run's figures.")
@click.option("--check", is_flag=True, help=f"Exit with 1 where ours takes over {WANTED_S:g} s or {WANTED_MB:g} MB.")
def main(ranks: int, entries: int, groups: int, large: bool, rounds: int, json_file: Path | None, check: bool) -> None:
    if large:
        ranks, entries = 10_000, 200
    with tempfile.TemporaryDirectory(prefix="explain-") as name:
        dumps = Path(name) / "dumps"
        write_job(dumps, ranks, entries, groups, odd=ranks // 3)
        commands = {OURS: [sys.executable, "-m", "rankdrill", "explain", str(dumps)]}
        if not large:
            analyzer = "torch.distributed.flight_recorder.fr_trace"
            commands[TORCHS] = [sys.executable, "-m", analyzer, str(dumps), "-p", "rank_"]
        figures = [_measured(tool, command) for _ in range(rounds) for tool, command in commands.items()]
        size = sum(file.stat().st_size for file in dumps.iterdir()) / MIB
    _show(figures, f"{ranks} ranks of {entries} entries, {groups} groups, {size:.0f} MiB")
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    wanted = LARGE_S if large else WANTED_S
    ours = [figure for figure in figures if figure.tool == OURS]
    slow = any(figure.seconds > wanted or (not large and figure.megabytes > WANTED_MB) for figure in ours)
    wrong = any(f"rank {ranks // 3} leaves out" not in figure.said for figure in ours)
    if wrong or (check and slow):
        raise SystemExit(1)


def _show(figures: list[Figure], title: str) -> None:
    table = Table("", "s", "CPU s", "MB", "exit", "first line", title=title)
    for figure in figures:
        numbers = f"{figure.seconds:.2f}", f"{figure.cpu_seconds:.2f}", f"{figure.megabytes:.0f}", str(figure.exit_code)
        table.add_row(figure.tool, *numbers, figure.said[:80])
    Console().print(table)


def _measured(tool: str, command: list[str]) -> Figure:
    with tempfile.TemporaryFile() as output:
        before = time.monotonic()
        cpu_before = _children_cpu()
        process = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        peak = [0.0]
        looker = threading.Thread(target=_look, args=(process, peak))
        looker.start()
        exit_code = process.wait()
        seconds = time.monotonic() - before
        looker.join()
        output.seek(0)
        said = output.readline().decode(errors="replace").strip()
    return Figure(tool, seconds, _children_cpu() - cpu_before, peak[0] / 1e6, exit_code, said)


def _children_cpu() -> float:
    times = psutil.Process().cpu_times()
    return float(times.children_user + times.children_system)


def _look(process: psutil.Popen, peak: list[float]) -> None:
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        total = 0
        try:
            for each in (process, *process.children(recursive=True)):
                total += each.memory_full_info().pss
        except psutil.Error:
            pass
        peak[0] = max(peak[0], total)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
