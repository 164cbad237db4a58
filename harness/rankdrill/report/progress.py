"""How far a drill has come: a bar on a terminal, now and then a plain line anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rankdrill.conformance.case import CaseResult

__all__ = ["watched"]

_PLAIN_EVERY_S = 10.0


def watched(results: Iterable[CaseResult], total: Callable[[], int], console: Console) -> Iterator[CaseResult]:
    """Pass `results` on, showing progress on `console`. `total` may grow."""
    return (_with_bar if console.is_terminal else _with_lines)(results, total, console)


def _with_bar(results: Iterable[CaseResult], total: Callable[[], int], console: Console) -> Iterator[CaseResult]:
    columns = (
        TextColumn("drilling"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", failed="", total=None)
        failed = 0
        for result in results:
            failed += not result.passed
            shown = f"[bold red]{failed} failed[/]" if failed else "[green]0 failed[/]"
            doing = f"[dim]{result.case.path}: {result.case.strike}[/]"
            progress.update(task, advance=1, total=total(), failed=shown, description=doing)
            yield result


def _with_lines(results: Iterable[CaseResult], total: Callable[[], int], console: Console) -> Iterator[CaseResult]:
    began = time.monotonic()
    said = began - _PLAIN_EVERY_S  # the first case shows that it runs
    failed = 0
    for done, result in enumerate(results, 1):
        failed += not result.passed
        now = time.monotonic()
        if now - said >= _PLAIN_EVERY_S:
            said = now
            console.print(f"drilling: {done} of {total()} cases, {failed} failed, {now - began:.0f} s", highlight=False)
        yield result
