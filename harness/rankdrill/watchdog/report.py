"""What a watchdog writes down of a hang: who is at fault, if that can be told, and what each process is doing."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rankdrill.diagnosis import name_ranks
from rankdrill.explain.explanation import places_of
from rankdrill.explain.recording import Look
from rankdrill.explain.told import harmless, print_explanation
from rankdrill.outputs import write_whole
from rankdrill.watchdog.asking import Seen
from rankdrill.watchdog.starting import name_of_host
from rankdrill.worlds.processes.watching.stacks import where_ranks_are

__all__ = ["HANG", "write_report"]

HANG = ".hang"


def write_report(directory: Path, look: Look, seen: Mapping[int, Seen], why: str) -> None:
    """Write it into a file of its own; where that cannot be, nobody has any trouble."""
    path = directory / f"{name_of_host()}-{time.time_ns():x}{HANG}"
    with suppress(OSError):
        write_whole(path, "\n".join(map(harmless, _lines(directory, look, seen, why))) + "\n")


def _lines(directory: Path, look: Look, seen: Mapping[int, Seen], why: str) -> Iterator[str]:
    yield why
    yield f"{time.strftime('%Y-%m-%d %H:%M:%S %z')}, by the watchdog of {name_of_host()}, which goes on"
    yield ""
    yield from _explained(look)
    yield ""
    yield "what the processes of this host are doing:"
    for place in places_of([(rank, each.doing or "not to be seen") for rank, each in sorted(seen.items())]):
        pids = ", ".join(str(seen[rank].pid) for rank in place.ranks)
        yield f"  {place} ({'process' if len(place.ranks) == 1 else 'processes'} {pids})"
    if others := sorted(look.evidence.ranks.keys() - seen.keys()):
        yield f"  {name_ranks(others)}: not on this host, or gone"
    yield ""
    yield "stacks:"
    stacks = {rank: each.stack for rank, each in seen.items() if each.stack}
    yield from (f"  {line}" for line in where_ranks_are(stacks).splitlines())
    if silent := sorted(seen.keys() - stacks.keys()):
        yield f"  {name_ranks(silent)} did not print any"
    yield ""
    yield f"rankdrill explain {directory} says what became of it"


def _explained(look: Look) -> Iterator[str]:
    from rich.console import Console

    text = io.StringIO()
    print_explanation(look.explanation, Console(file=text, width=120, color_system=None, highlight=False))
    yield from text.getvalue().splitlines()
