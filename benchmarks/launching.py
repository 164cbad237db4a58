"""How long a script of one collective takes, from the command to its end: `rankdrill run` beside torchrun."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

WANTED = 0.5  # of torchrun's time, at most
SCRIPT = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
dist.destroy_process_group()
"""
HELP = """How long a script of one collective takes on N ranks, from the command to its end: `rankdrill run`, which
watches it, beside torchrun, which does not.

Both take turns, in rounds; the ratio is the median of the rounds' ratios. What rankdrill keeps between sessions
(RANKDRILL_KEEP_TEMPLATE) is not used.

\b
Examples:
  python benchmarks/launching.py
  python benchmarks/launching.py --ranks 2,4,8 --rounds 9 --check
"""


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--ranks", "sizes", default="4", show_default=True, metavar="N[,N...]", help="How many ranks.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Runs of each.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every run's seconds.")
@click.option("--check", is_flag=True, help=f"Exit with 1 above {WANTED:g} of torchrun's time.")
def main(sizes: str, rounds: int, json_file: Path | None, check: bool) -> None:
    numbers = [int(size) for size in sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="launching-") as folder:
        script = Path(folder) / "one_collective.py"
        script.write_text(SCRIPT)
        measured = {size: _measured(size, rounds, script) for size in numbers}
    table = Table("ranks", "torchrun s", "rankdrill run s", "ratio")
    for size, runs in measured.items():
        theirs, ours = (statistics.median(seconds) for seconds in zip(*runs, strict=True))
        table.add_row(str(size), f"{theirs:.2f}", f"{ours:.2f}", f"{_ratio(runs):.2f}")
    Console().print(table)
    if json_file is not None:
        json_file.write_text(json.dumps({"torchrun, rankdrill run: seconds by round": measured}, indent=1) + "\n")
    if check and any(_ratio(runs) > WANTED for runs in measured.values()):
        raise SystemExit(1)


def _measured(size: int, rounds: int, script: Path) -> list[tuple[float, float]]:
    torchrun = [_beside("torchrun"), "--nproc-per-node", str(size), str(script)]
    ours = [sys.executable, "-m", "rankdrill", "run", "-n", str(size), str(script)]
    turns = track(range(rounds), f"{size} ranks", console=Console(stderr=True))
    return [(_seconds(torchrun), _seconds(ours)) for _ in turns]


def _beside(command: str) -> str:
    """The command of this Python's environment."""
    found = shutil.which(command, path=str(Path(sys.executable).parent))
    if found is None:
        raise click.ClickException(f"{command} is not installed beside {sys.executable}")
    return found


def _seconds(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - began


def _ratio(runs: list[tuple[float, float]]) -> float:
    return statistics.median(ours / theirs for theirs, ours in runs)


if __name__ == "__main__":
    main()
