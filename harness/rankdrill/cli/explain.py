"""``rankdrill explain``: what is left of a hung job, and which rank is at fault."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankdrill.cli.choose import choose_output
from rankdrill.cli.terminal import terminal
from rankdrill.errors import UsageError
from rankdrill.outputs import write_whole

if TYPE_CHECKING:
    from rich.console import Console

    from rankdrill.explain import Explanation

__all__ = ["explain"]

_FEW = 64  # files, which are read before a bar is seen


@click.command()
@click.option("--prefix", metavar="TEXT", help="What the names of the dumps begin with, before the rank.")
@click.option("--json", "json_file", metavar="FILE", help="Write what came of it as JSON.")
@click.option("--watch", is_flag=True, help="Show a recorded job while it runs, and explain it once that is possible.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.pass_context
def explain(
    ctx: click.Context, prefix: str | None, json_file: str | None, watch: bool, paths: tuple[Path, ...]
) -> None:
    """Say why a job hung, from what it left behind: one root cause first, with what speaks for it.

    PATH is what `rankdrill.record` wrote, while the job runs or after its end; or a directory with the dumps of
    PyTorch's Flight Recorder, pickles or JSON, one file for each rank, or the files themselves. Nothing in a dump is
    executed, and files that are no dumps are passed over.

    NCCL jobs write dumps when their watchdog times out, to files named TORCH_FR_DUMP_TEMP_FILE and the rank, if
    TORCH_FR_BUFFER_SIZE is above 0; older torch calls these TORCH_NCCL_DEBUG_INFO_TEMP_FILE and
    TORCH_NCCL_TRACE_BUFFER_SIZE.

    \b
    Examples:
      rankdrill explain recorded/
      rankdrill explain recorded/ --watch             until Ctrl-C, or until all ranks are gone
      rankdrill explain /tmp/nccl_trace_rank_0 /tmp/nccl_trace_rank_1
      rankdrill explain dumps/
      rankdrill explain dumps/ --prefix nccl_trace_rank_
      rankdrill explain dumps/ --json why.json

    \b
    Exit codes: 0 nothing was found, 1 a cause was found, 2 a mistake in the command, 130 interrupted.
    """
    json_path = choose_output("--json", json_file)
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or directory")
    if watch:
        _watch(paths)
    explanation = _explained(paths, prefix, terminal(stderr=True))
    from rankdrill.explain.told import print_explanation

    print_explanation(explanation, terminal())
    if json_path is not None:
        _write(json_path, explanation)
    ctx.exit(1 if explanation.causes else 0)


def _watch(paths: tuple[Path, ...]) -> None:
    """Until all ranks are gone, or somebody has seen enough."""
    from rankdrill.explain.recording import is_recording
    from rankdrill.explain.recording.live import watch

    if len(paths) != 1 or not is_recording(paths[0]):
        raise UsageError("--watch: give the one directory that rankdrill.record writes to")
    with suppress(KeyboardInterrupt):
        watch(paths[0], terminal())


def _explained(paths: tuple[Path, ...], prefix: str | None, err: Console) -> Explanation:
    """What lies there decides who explains it: recorded ledgers, or dumps."""
    from rankdrill.explain.flight import explain_dumps

    if len(paths) == 1 and any(paths[0].glob("*.ledger")):  # else torch need not be imported
        from rankdrill.explain.recording import explain_recording, is_recording

        if is_recording(paths[0]):
            return explain_recording(paths[0])
    if not err.is_terminal:
        return explain_dumps(paths, prefix)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("reading dumps"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=None, visible=False)

        def look(read: int, total: int) -> None:
            progress.update(task, completed=read, total=total, visible=total > _FEW)

        return explain_dumps(paths, prefix, look)


def _write(path: Path, explanation: Explanation) -> None:
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
    try:
        write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UsageError(f"--json {path}: {error.strerror}; give another file") from error
