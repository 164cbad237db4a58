"""Many dumps read one after the other: of each, its columns stay, and all else goes before the next is opened."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rankdrill.errors import DumpError
from rankdrill.explain.flight.columns import Call, Group, Table, columns_of
from rankdrill.explain.flight.job import Dump, Job, make_job
from rankdrill.explain.flight.load import load, read_bytes
from rankdrill.explain.flight.sources import Source
from rankdrill.step import Site

__all__ = ["read_job"]


def read_job(sources: Sequence[Source], look: Callable[[int], None] = lambda read: None) -> Job:
    """The job of which `sources` hold the dumps; `look` is called with how many have been read."""
    groups, calls, sites = Table[Group](), Table[Call](), Table[Site | None]()
    dumps = []
    with _no_collector():
        for source in sources:
            dumps.append(_read(source, groups, calls, sites))
            look(len(dumps))
    return make_job(dumps, groups.keys, calls.keys, sites.keys)


def _read(source: Source, groups: Table[Group], calls: Table[Call], sites: Table[Site | None]) -> Dump:
    name = source.path.name
    try:
        columns = columns_of(load(read_bytes(source.path)), groups, calls, sites)
        written = source.path.stat().st_mtime_ns
    except (DumpError, OSError) as error:
        return Dump(source.rank, name, None, str(error))
    except MemoryError:
        return Dump(source.rank, name, None, "does not fit into memory")
    return Dump(source.rank, name, columns, written_ns=written)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Without the garbage collector, which goes through millions of objects that are in no cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
