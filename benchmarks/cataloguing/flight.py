"""Dumps of torch's flight recorder: written when a rank raises, or when it is asked for one before it is killed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from benchmarks.cataloguing.flight_seam import BUFFER, PREFIX, trace

__all__ = ["dumps", "recorded"]

ASKED = "dump"  # the file by which ranks are asked
LOOKS_EVERY_S = 0.02
DUMP_S = 5.0  # for a dump: a rank that holds the interpreter's lock never makes one


@contextmanager
def recorded(directory: Path, rank: int) -> Iterator[None]:
    """On a rank, around all that it does: a dump when it raises, or is asked."""
    os.environ |= BUFFER
    threading.Thread(target=_dump_when_asked, args=(directory, rank), daemon=True).start()
    try:
        yield
    except BaseException:
        with suppress(Exception):  # what the program raises is to be seen; of the dump it is said that it is not there
            _dump(directory, rank)
        raise


def dumps(directory: Path, ranks: Sequence[ForkServerProcess]) -> Path:
    """Ask all that live for their dumps, and say where those are that came."""
    (directory / ASKED).touch()
    until = time.monotonic() + DUMP_S
    while time.monotonic() < until:
        if all(_place(directory, index).exists() or not rank.is_alive() for index, rank in enumerate(ranks)):
            break
        time.sleep(LOOKS_EVERY_S)
    traces = _place(directory, 0).parent
    traces.mkdir(exist_ok=True)
    return traces


def _dump_when_asked(directory: Path, rank: int) -> None:
    while not (directory / ASKED).exists():
        time.sleep(LOOKS_EVERY_S)
    _dump(directory, rank)


def _dump(directory: Path, rank: int) -> None:
    place = _place(directory, rank)
    place.parent.mkdir(exist_ok=True)
    # A rank may raise while its other thread is asked: whoever is last replaces the whole file.
    unfinished = directory / f"{rank}.{threading.get_ident()}.dump"
    unfinished.write_bytes(trace())
    unfinished.replace(place)


def _place(directory: Path, rank: int) -> Path:
    return directory / "traces" / f"{PREFIX}{rank}"
