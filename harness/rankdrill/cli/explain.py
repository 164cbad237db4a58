"""``rankdrill explain``: what is left of a hung job, and which rank is at fault."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankdrill.cli.choose import choose_output
from rankdrill.cli.terminal import terminal
from rankdrill.errors import UsageError
from rankdrill.outputs import write_whole

if TYPE_CHECKING:
    from typing import TypeAlias

    from rich.console import Console

    from rankdrill.explain.debug_server import Served
    from rankdrill.explain.explanation import Explanation
    from rankdrill.explain.flight.explained import Read
    from rankdrill.explain.recording import Look
    from rankdrill.report import Picture

    Explained: TypeAlias = tuple[Explanation, Callable[[], Picture]]

__all__ = ["explain"]

_FEW = 64  # files, which are read before a bar is seen


@click.command()
@click.option("--prefix", metavar="TEXT", help="What the names of the dumps begin with, before the rank.")
@click.option("--json", "json_file", metavar="FILE", help="Write what came of it as JSON.")
@click.option("--html", "html_file", metavar="FILE", help="Write a page to look at.")
@click.option("--perfetto", "trace_file", metavar="FILE", help="Write the steps as a trace, for ui.perfetto.dev.")
@click.option("--watch", is_flag=True, help="Show a recorded job while it runs, and explain it once that is possible.")
@click.option("--run", "number", type=int, metavar="N", help="Of a directory with several recorded runs the N-th.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.pass_context
def explain(
    ctx: click.Context,
    prefix: str | None,
    json_file: str | None,
    html_file: str | None,
    trace_file: str | None,
    watch: bool,
    number: int | None,
    paths: tuple[str, ...],
) -> None:
    """Say why a job hung, from what it left behind: one root cause first, with what speaks for it.

    PATH is what `rankdrill.record` wrote, while the job runs or after its end; or a directory with the dumps of
    PyTorch's Flight Recorder, pickles or JSON, one file for each rank, or the files themselves; or the directory that
    torch.distributed.debug's server writes to, or http://HOST:PORT, where it serves. Nothing in a dump is executed, and
    files that are no dumps are passed over.

    NCCL jobs write dumps when their watchdog times out, to files named TORCH_FR_DUMP_TEMP_FILE and the rank, if
    TORCH_FR_BUFFER_SIZE is above 0; older torch calls these TORCH_NCCL_DEBUG_INFO_TEMP_FILE and
    TORCH_NCCL_TRACE_BUFFER_SIZE.

    \b
    Examples:
      rankdrill explain recorded/
      rankdrill explain recorded/ --watch             until Ctrl-C, or until all ranks are gone
      rankdrill explain /tmp/nccl_trace_rank_0 /tmp/nccl_trace_rank_1
      rankdrill explain dumps/
      rankdrill explain http://127.0.0.1:25999
      rankdrill explain dumps/ --prefix nccl_trace_rank_
      rankdrill explain dumps/ --json why.json --html why.html

    \b
    Exit codes: 0 nothing was found, 1 a cause was found, 2 a mistake in the command, 130 interrupted.
    """
    asked = {"--json": json_file, "--html": html_file, "--perfetto": trace_file}
    files = {option: path for option, name in asked.items() if (path := choose_output(option, name)) is not None}
    if watch:
        _watch(_existing(paths), number)
    of_server = _of_server(paths)
    explanation, picture = of_server or _explained(_existing(paths), prefix, number, terminal(stderr=True))
    from rankdrill.explain.told import print_explanation

    for option, path in files.items():  # first: nobody need be reading what is shown
        _write(option, path, explanation, picture)
    print_explanation(explanation, terminal())
    ctx.exit(1 if explanation.causes else 0)


def _of_server(paths: tuple[str, ...]) -> Explained | None:
    """What torch's debug server tells, where one is asked, or what it has written; None where it is something else."""
    from rankdrill.explain.debug_server import read_served

    served = read_served(paths)
    if served is None:
        return None
    return served.explanation, lambda: _picture_of_served(served, shlex.join(["rankdrill", "replay", *paths]))


def _picture_of_served(served: Served, repeat: str) -> Picture:
    from rankdrill.explain.debug_server.pictured import picture_of_served

    return picture_of_served(served, repeat)


def _existing(paths: tuple[str, ...]) -> tuple[Path, ...]:
    for path in paths:
        if not Path(path).exists():
            raise UsageError(f"{path}: there is no such file or directory")
    return tuple(map(Path, paths))


def _watch(paths: tuple[Path, ...], number: int | None) -> None:
    """Until all ranks are gone, or somebody has seen enough."""
    from rankdrill.explain.recording import is_recording
    from rankdrill.explain.recording.live import watch

    if len(paths) != 1 or not is_recording(paths[0]):
        raise UsageError("--watch: give the one directory that rankdrill.record writes to")
    with suppress(KeyboardInterrupt):
        watch(paths[0], terminal(), number)


def _explained(paths: tuple[Path, ...], prefix: str | None, number: int | None, err: Console) -> Explained:
    """What lies there decides who explains it, and makes a picture of it if asked: recorded ledgers, or dumps."""
    if len(paths) == 1 and any(paths[0].glob("*.ledger")):  # else torch need not be imported
        from rankdrill.explain.recording import is_recording, look_into

        if is_recording(paths[0]):
            look = look_into(paths[0], number)
            return look.explanation, lambda: _picture_of_recording(look, paths[0], number)
    if number is not None:
        raise UsageError(f"--run {number}: give the one directory that rankdrill.record writes to")
    read = _read(paths, prefix, err)
    again = ["rankdrill", "replay", *(("--prefix", prefix) if prefix is not None else ()), *map(str, paths)]
    return read.explanation, lambda: _picture_of_dumps(read, shlex.join(again))


def _picture_of_recording(look: Look, path: Path, number: int | None) -> Picture:
    from rankdrill.explain.recording.pictured import picture_of_recording

    return picture_of_recording(look, path, number)


def _picture_of_dumps(read: Read, repeat: str) -> Picture:
    from rankdrill.explain.flight.pictured import picture_of_dumps

    return picture_of_dumps(read, repeat)


def _read(paths: tuple[Path, ...], prefix: str | None, err: Console) -> Read:
    from rankdrill.explain.flight.explained import read_dumps

    if not err.is_terminal:
        return read_dumps(paths, prefix)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("reading dumps"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=None, visible=False)

        def look(read: int, total: int) -> None:
            progress.update(task, completed=read, total=total, visible=total > _FEW)

        return read_dumps(paths, prefix, look)


def _write(option: str, path: Path, explanation: Explanation, picture: Callable[[], Picture]) -> None:
    try:
        write_whole(path, _as_json(explanation) if option == "--json" else _shown(option, picture()))
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; give another file") from error


def _shown(option: str, picture: Picture) -> str:
    from rankdrill.report import run_as_html, run_as_trace

    return run_as_html(picture) if option == "--html" else run_as_trace(picture)


def _as_json(explanation: Explanation) -> str:
    import json

    import rankdrill
    from rankdrill.explain.as_json import FORMAT, VERSION, explanation_as_fields

    document = {
        "format": FORMAT,
        "version": VERSION,
        "rankdrill": rankdrill.__version__,
        "command": sys.argv[1:],
        **explanation_as_fields(explanation),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
