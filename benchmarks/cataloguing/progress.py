"""How far a tool has come with the programs: a bar on a terminal, now and then a plain line anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["watched"]

_PLAIN_EVERY_S = 30.0


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Program = TypeVar("_Program", bound=_Named)


def watched(programs: Sequence[_Program], tool: str, console: Console) -> Iterator[_Program]:
    """Pass `programs` on, one after the other, showing which of them `tool` is at."""
    return (_with_bar if console.is_terminal else _with_lines)(programs, tool, console)


def _with_bar(programs: Sequence[_Program], tool: str, console: Console) -> Iterator[_Program]:
    columns = (
        TextColumn(tool),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.description}[/]"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(programs))
        for program in programs:
            progress.update(task, description=program.name)
            yield program
            progress.advance(task)


def _with_lines(programs: Sequence[_Program], tool: str, console: Console) -> Iterator[_Program]:
    began = said = time.monotonic()
    for done, program in enumerate(programs):
        yield program
        now = time.monotonic()
        if now - said >= _PLAIN_EVERY_S:
            said = now
            console.print(f"{tool}: {done + 1} of {len(programs)} programs, {now - began:.0f} s", highlight=False)
