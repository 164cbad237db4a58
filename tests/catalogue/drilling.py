"""Runs programs of the catalogue under rankdrill, and reads its verdict as a user does."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.distributed_c10d import PrefixStore

from rankdrill import Outcome, World
from rankdrill.errors import RankVictim
from rankdrill.worlds import Status
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from tests.catalogue.programs import Program, Rank, modules, program_named
from tests.catalogue.scoring import Verdict, lines_in

__all__ = ["DEADLINE_S", "Drill", "drills", "play_program", "read"]

DEADLINE_S = 10.0


class Drill:
    """Runs programs on worlds that are kept, one for each number of ranks, over `backend`; tensors are on `device`."""

    def __init__(self, backend: str = "gloo", device: str = "cpu") -> None:
        self._backend = backend
        self._device = device
        self._worlds: dict[int, World] = {}

    def verdict_on(self, program: Program, deadline: float = DEADLINE_S) -> Verdict:
        """Run `program`, and say what rankdrill says of it. Ranks are up before it begins."""
        world = self._worlds.get(program.ranks)
        if world is None:
            world = World(program.ranks, backend=self._backend, device=self._device, preload=modules())
            self._worlds[program.ranks] = world
        world.run(_nothing).unwrap()
        with tempfile.TemporaryDirectory() as directory:
            job = Job(play_program, (program.place, directory, self._device), with_context=True)
            try:
                outcome = world.run_job(job, deadline=deadline)
            except BaseException:
                world.discard()  # nobody has seen how its ranks ended
                raise
            return read(outcome, program.file)

    def close(self) -> None:
        for world in self._worlds.values():
            world.discard()


@contextmanager
def drills(backend: str = "gloo", device: str = "cpu") -> Iterator[Drill]:
    """A `Drill` whose ranks are ended afterwards."""
    drill = Drill(backend, device)
    try:
        yield drill
    finally:
        drill.close()


def _nothing() -> None:
    """For ranks that are to be up."""


def play_program(context: RankContext, place: tuple[str, str], directory: str, device: str = "cpu") -> Any:
    """On a rank: run the program of that place, with tensors on `device` where it says nothing of one."""
    # Ranks that are kept keep their store, and what earlier programs have set in it.
    store = PrefixStore(Path(directory).name, context.store)
    rank = Rank(context.index, context.world_size, context.group, store, Path(directory))
    body = program_named(place).body
    if device == "cpu":
        return body(rank)  # what comes of it
    with torch.device(device):
        return body(rank)


def read(outcome: Outcome, file: str) -> Verdict:
    """What a user is told by `outcome`, of lines in `file`."""
    if outcome.ok:
        return Verdict(noticed=False, seconds=outcome.elapsed)
    errors = _errors(outcome)
    text = "\n".join(map(_as_shown, errors))
    if outcome.findings:
        finding = outcome.findings[0]
        # The culprits' side comes first; where nobody is accused every side is meant.
        shown = finding.lines[0] if finding.culprits else "\n".join(finding.lines)
        kind, ranks, accuses = str(finding.kind), frozenset(finding.ranks), bool(finding.culprits)
    else:
        kind, ranks, accuses = _kind(outcome), frozenset(outcome.culprits), True
        shown = "\n".join(_shown(outcome, culprit) for culprit in outcome.culprits)
    lines = lines_in(shown, file)
    return Verdict(True, outcome.elapsed, kind, ranks, accuses, lines, len(errors), text)


def _errors(outcome: Outcome) -> list[BaseException]:
    """What a test would fail by, without the victims."""
    try:
        outcome.unwrap()
    except BaseExceptionGroup as group:
        return [error for error in group.exceptions if not isinstance(error, RankVictim)]
    raise AssertionError("an outcome that is not ok unwraps")


def _as_shown(error: BaseException) -> str:
    """Findings say where; an error of the program's own is shown with the lines that it came from."""
    if error.__traceback__ is None:
        return str(error)
    return "".join(traceback.format_exception(error, chain=False)).rstrip()


def _kind(outcome: Outcome) -> str:
    """The kind of a verdict that speaks of ranks, by how they ended."""
    kinds = set()
    for culprit in outcome.culprits:
        rank = outcome.ranks[culprit]
        if rank.status in (Status.RAISED, Status.DIED):
            kinds.add("lost rank")
        elif rank.status is Status.STUCK and rank.wait is None:
            kinds.add("stuck rank")
        else:
            kinds.add("")
    return kinds.pop() if len(kinds) == 1 else ""


def _shown(outcome: Outcome, culprit: int) -> str:
    rank = outcome.ranks[culprit]
    return "\n".join((outcome.describe(culprit), rank.traceback, rank.stack))
