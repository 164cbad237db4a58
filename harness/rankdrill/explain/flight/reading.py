"""Many dumps read one after the other: of each, its columns stay, and all else goes before the next is opened.

Where there is much to read, further processes take their share; each numbers groups, calls and sites for itself.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from rankdrill.errors import DumpError
from rankdrill.explain.collector import no_collector
from rankdrill.explain.flight.columns import Tables, columns_of
from rankdrill.explain.flight.job import Dump, Job, make_job
from rankdrill.explain.flight.load import load, read_bytes
from rankdrill.explain.flight.quick import columns_of_pickle
from rankdrill.explain.flight.sources import Source

__all__ = ["read_job", "serve"]

MOST_PROCESSES = 8
WORTH_BYTES = 32 << 20  # for which a further process has started, and read, before this one were done
_HEAD_START = 2  # half of them this one has read before the other has started
_HELPER = "import sys; from rankdrill.explain.flight.reading import serve; serve(sys.stdin, sys.stdout.buffer)"


@dataclass
class _Read:
    """Dumps, and the tables that their columns speak of."""

    tables: Tables = field(default_factory=Tables)
    dumps: list[Dump] = field(default_factory=list)

    def take(self, source: Source) -> None:
        """Read one."""
        name = source.path.name
        try:
            raw = read_bytes(source.path)
            columns = columns_of_pickle(raw, self.tables) or columns_of(load(raw), self.tables)
            written = source.path.stat().st_mtime_ns
            self.dumps.append(Dump(source.rank, name, columns, written_ns=written))
        except (DumpError, OSError) as error:
            self.dumps.append(Dump(source.rank, name, None, str(error)))
        except MemoryError:
            self.dumps.append(Dump(source.rank, name, None, "does not fit into memory"))

    def merge(self, other: _Read) -> None:
        """Take over what another process has read."""
        mine, theirs = vars(self.tables), vars(other.tables)
        numbers = {
            name: np.array([mine[name].number(key) for key in theirs[name].known] or [0], np.int32)
            for name in ("group", "call", "site", "members")
        }
        self.dumps.extend(_renumbered(dump, numbers) for dump in other.dumps)


def read_job(sources: Sequence[Source], look: Callable[[int], None] = lambda read: None) -> Job:
    """The job of which `sources` hold the dumps; `look` is called with how many have been read."""
    read = _Read()
    with no_collector(), _helped(sources) as (mine, helpers):
        processes = len(helpers) + 1
        for place, source in enumerate(mine):
            read.take(source)
            look(min(len(sources), (place + 1) * processes))
        for helper, share in helpers:
            _merge(read, helper, share)
    return make_job(read.dumps, read.tables)


def serve(asked: IO[str], answer: IO[bytes]) -> None:
    """In a further process: read what is asked for, a JSON list of ranks and paths, and answer with what came of it."""
    read = _Read()
    with no_collector():
        for rank, path in json.load(asked):
            read.take(Source(rank, Path(path)))
    pickle.dump(read, answer, protocol=5)


_Helper = subprocess.Popen[bytes]


@contextmanager
def _helped(sources: Sequence[Source]) -> Iterator[tuple[Sequence[Source], list[tuple[_Helper, Sequence[Source]]]]]:
    """This process's share of `sources`, and the processes that read the others."""
    size = _size(sources)
    count = max(1, min(len(os.sched_getaffinity(0)), MOST_PROCESSES, size // WORTH_BYTES, len(sources)))
    alone = len(sources) * (WORTH_BYTES // _HEAD_START) // size if count > 1 else 0
    shares = [sources[alone + number :: count] for number in range(count)]
    shares[0] = [*sources[:alone], *shares[0]]
    helpers: list[tuple[_Helper, Sequence[Source]]] = []
    try:
        for share in shares[1:]:
            helpers.append((_started(share), share))
        yield shares[0], helpers
    finally:
        for helper, _ in helpers:
            helper.kill()
            helper.wait()
            if helper.stdout is not None:
                helper.stdout.close()


def _size(sources: Sequence[Source]) -> int:
    size = 0
    for source in sources:
        with suppress(OSError):
            size += source.path.stat().st_size
    return size


def _started(share: Sequence[Source]) -> _Helper:
    paths = os.pathsep.join(path for path in sys.path if path)
    helper = subprocess.Popen(
        [sys.executable, "-c", _HELPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert helper.stdin is not None
    with suppress(BrokenPipeError), helper.stdin as asked:  # killed already: then it answers nothing
        asked.write(json.dumps([(source.rank, str(source.path.absolute())) for source in share]).encode())
    return helper


def _merge(read: _Read, helper: _Helper, share: Sequence[Source]) -> None:
    """What the helper has read; what it has not, because it was killed, say, is read here."""
    assert helper.stdout is not None
    try:
        # Its pipe has what our own code has written, nothing that lay in a file.
        read.merge(pickle.load(helper.stdout))
    except (EOFError, pickle.UnpicklingError):
        for source in share:
            read.take(source)


def _renumbered(dump: Dump, numbers: Mapping[str, Any]) -> Dump:
    if dump.columns is None:
        return dump
    columns = dump.columns
    arrays = {name: numbers[name][array] if name in numbers else array for name, array in columns.arrays.items()}
    groups = {name: int(numbers["members"][number]) for name, number in columns.groups.items()}
    return replace(dump, columns=replace(columns, arrays=arrays, groups=groups))
