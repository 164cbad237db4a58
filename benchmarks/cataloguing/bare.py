"""Runs programs of the catalogue as a script does: processes, gloo, a deadline, and nobody who watches.

A process that fails takes the others with it after a moment, as torchrun's agent ends them. With the flight recorder,
those that are about to be ended are asked for a dump first, as NCCL's watchdog asks its own, and torch's analyzer reads
the dumps. It is asked of runs that fail or hang, so the mistakes that are noticed are those that plain gloo notices.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch.distributed as dist
from benchmarks.cataloguing.flight import dumps, recorded
from benchmarks.cataloguing.flight_reading import read_with_dumps
from benchmarks.cataloguing.flight_seam import Mismatch, mismatches
from benchmarks.cataloguing.reading import Ended, read
from tests.catalogue.programs import Program, Rank, modules, program_named
from tests.catalogue.scoring import Verdict
from torch.distributed import FileStore, PrefixStore, set_debug_level_from_env  # type: ignore[attr-defined]

__all__ = ["DETAIL", "FLIGHT", "GLOO", "Bare", "meet", "wait_for_begin", "wait_for_end"]

GLOO, DETAIL, FLIGHT = "gloo", "DETAIL", "flight recorder"
GRACE_S = 1.0  # from the first failure to the end of the others
START_S = 60.0  # for processes to begin, whatever else the machine does


@dataclass(frozen=True, slots=True)
class Bare:
    """Plain `GLOO`; under ``TORCH_DISTRIBUTED_DEBUG=DETAIL``; or with the dumps of its `FLIGHT` recorder analyzed."""

    tool: str

    def verdict_on(self, program: Program, deadline: float) -> Verdict:
        with tempfile.TemporaryDirectory() as name, _started(program, Path(name), self.tool) as ranks:
            directory = Path(name)
            began = wait_for_begin(ranks, directory)
            wait_for_end(ranks, began + deadline)
            seconds = time.monotonic() - began
            ended = [_how_it_ended(rank, directory / f"{index}.err") for index, rank in enumerate(ranks)]
            if self.tool != FLIGHT or not any(each.failed or each.hung for each in ended):
                return read(program, ended, seconds)
            return read_with_dumps(program, ended, seconds, *_analyzed(dumps(directory, ranks)))


@contextmanager
def _started(program: Program, directory: Path, tool: str) -> Iterator[list[ForkServerProcess]]:
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", *modules()])
    ranks = [
        context.Process(target=_play, args=(program.place, index, program.ranks, str(directory), tool))
        for index in range(program.ranks)
    ]
    try:
        for rank in ranks:
            rank.start()
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def wait_for_begin(ranks: Sequence[ForkServerProcess], directory: Path) -> float:
    """When the last rank was about to enter the program."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if all((directory / f"{index}.up").exists() for index in range(len(ranks))):
            return time.monotonic()
        time.sleep(0.002)
    raise SystemExit(f"the processes did not begin within {START_S:.0f} s: {_all_text(directory)}")


def wait_for_end(ranks: Sequence[ForkServerProcess], until: float) -> None:
    left = {rank.sentinel: rank for rank in ranks}
    while left and (wait := until - time.monotonic()) > 0:
        for sentinel in connection.wait(left, wait):
            assert isinstance(sentinel, int)
            rank = left.pop(sentinel)
            rank.join()
            if rank.exitcode:
                until = min(until, time.monotonic() + GRACE_S)


def _analyzed(traces: Path) -> tuple[list[Mismatch], str]:
    try:
        return mismatches(traces)
    except Exception as error:  # of one dump or the other it may make nothing; what the processes say is there still
        return [], f"the analyzer failed: {error!r}"


def _how_it_ended(rank: ForkServerProcess, errors: Path) -> Ended:
    return Ended(rank.exitcode, errors.read_text(errors="replace"))


def _all_text(directory: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in directory.glob("*.err"))


def _play(place: tuple[str, str], index: int, size: int, directory: str, tool: str) -> None:
    """On a rank: what a script does around its own work."""
    here = Path(directory)
    with (here / f"{index}.err").open("w") as errors, Path(os.devnull).open("w") as nothing:
        os.dup2(errors.fileno(), sys.stderr.fileno())
        os.dup2(nothing.fileno(), sys.stdout.fileno())
    faulthandler.enable()
    if tool == DETAIL:
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        set_debug_level_from_env()
    with recorded(here, index) if tool == FLIGHT else nullcontext():
        _begin_and_play(program_named(place), index, size, here)


def _begin_and_play(program: Program, index: int, size: int, here: Path) -> None:
    store = FileStore(str(here / "store"), size)
    dist.init_process_group("gloo", store=PrefixStore("gloo", store), rank=index, world_size=size)
    meet(store, "begin", size)
    group = dist.group.WORLD
    assert group is not None
    shared = here / "shared"
    shared.mkdir(exist_ok=True)
    (here / f"{index}.up").touch()
    program.body(Rank(index, size, group, PrefixStore("user", store), shared))
    meet(store, "end", size)
    if dist.is_initialized():  # a rank may have destroyed it itself
        dist.destroy_process_group()


def meet(store: FileStore, name: str, size: int) -> None:
    """A barrier on the store: at first gloo's connections may not all be up, and at last others may still need them."""
    if store.add(name, 1) == size:
        store.set(f"{name}/all", "yes")
    store.wait([f"{name}/all"])
