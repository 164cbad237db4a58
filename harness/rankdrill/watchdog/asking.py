"""What the processes of this host are doing: by the kernel, and by themselves, who print their stacks when asked.

Nobody is stopped for it, nor ended: one that does not answer is told by what can be seen from outside.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rankdrill.explain.recording.reading import Recorded
from rankdrill.host import started_at
from rankdrill.watchdog.answered import heading, without_ours
from rankdrill.watchdog.answering import ASKED_BY, STACKS
from rankdrill.worlds.processes.watching.activity import STOPPED, activities
from rankdrill.worlds.processes.watching.native import native_stacks
from rankdrill.worlds.processes.watching.stacks import stacks_in

__all__ = ["Seen", "ask"]

MOST_BYTES = 1 << 20  # of one answer: a process may have as many threads as it likes


@dataclass(frozen=True)
class Seen:
    """A process from outside: what it was `doing` in words, and its `stack`, empty where it did not answer."""

    pid: int
    doing: str
    stack: str


def ask(directory: Path, processes: Mapping[int, Recorded]) -> dict[int, Seen]:
    """What `processes`, of this host, by rank, are doing."""
    pids = {rank: one.pid for rank, one in processes.items()}
    doing = activities(pids)  # first: the signal may wake one from what it sleeps in
    files = {rank: path for rank, one in processes.items() if (path := directory / f"{one.name}{STACKS}").exists()}
    head = heading()
    for rank, path in files.items():
        _append(path, f"\n{head}{doing.get(rank, '')}\n")
    listening = [rank for rank in files if doing.get(rank) != STOPPED]

    def signal_all() -> None:
        for rank in listening:
            one = processes[rank]
            if started_at(one.pid) == one.number("started"):  # and no later process of that number
                with suppress(OSError):
                    os.kill(one.pid, ASKED_BY)

    told = stacks_in({rank: files[rank] for rank in listening}, signal_all)
    stacks = {rank: without_ours(text[:MOST_BYTES]) for rank, text in told.items() if text.strip()}
    silent = {rank: pid for rank, pid in pids.items() if rank not in stacks}
    from_outside = native_stacks(silent, unstopped=True)
    for rank, text in from_outside.items():
        if rank in files:
            _append(files[rank], text + "\n")
    return {rank: Seen(pids[rank], doing.get(rank, ""), (stacks | from_outside).get(rank, "")) for rank in processes}


def _append(path: Path, text: str) -> None:
    """To a file that is there, and that its process writes to as well."""
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(fd, text.encode("utf-8", "backslashreplace"))
        finally:
            os.close(fd)
