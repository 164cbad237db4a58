"""Runs every way with one payload in rounds, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.gathering.on_rank import measure
from benchmarks.gathering.payloads import SEED, Payload
from benchmarks.gathering.results import Cell, repetitions
from benchmarks.gathering.setting import Way

from rankdrill import World, gathers
from rankdrill.worlds.job import Job

DEADLINE_S = 300.0  # of one run of a few calls, by far the slowest included
CHECKED_IS_ENOUGH_S = 10.0  # a first call as slow as this is not repeated just to be warm
BASELINE_CALLS = 3  # at least, whatever they cost
SAMPLES_AT_ONCE = 10  # of a small payload


@dataclass(frozen=True)
class Effort:
    """How often to repeat: up to `small` or `large` times, at least once, until `budget_s` per cell is spent."""

    small: int = 50
    large: int = 5
    budget_s: float = 15.0
    slow: bool = False

    def wanted(self, payload: Payload) -> int:
        return self.small if payload.small else self.large

    def calls(self, payload: Payload) -> int:
        """Samples of one way per round."""
        return min(SAMPLES_AT_ONCE, self.small) if payload.small else 1


@dataclass(frozen=True)
class Place:
    """Where payloads may be written: a directory, and the prefix of shared-memory segments."""

    directory: str
    prefix: str


@dataclass
class _Turn:
    way: Way
    cell: Cell
    spent_s: float = 0.0
    done: bool = False


def run_payload(
    world: World,
    payload: Payload,
    ways: Sequence[Way],
    effort: Effort,
    place: Place,
    tell: Callable[[str, float], None],
) -> list[Cell]:
    """A cell for each of `ways`. `tell` is given what comes next and which part of the payload is done."""
    turns = [_Turn(way, Cell(way.key, way.name, way.family, payload.key)) for way in ways]
    for turn in turns:
        turn.cell.missing = _why_not(turn.way, payload, effort)
        turn.done = bool(turn.cell.missing)
        turn.cell.broken = bool(turn.way.needs and turn.cell.missing)
    share = 1 / max(1, sum(not turn.done for turn in turns))
    for turn in turns:
        if not turn.done:
            tell(f"{payload.key}: {turn.way.name}, checked", 0.0)
            _checked(world, turn, payload, effort, place)
    order = random.Random(SEED)
    while waiting := [turn for turn in turns if not turn.done]:
        # In another order each time: memory that lay idle is slow at its first use on a virtual machine, and what a way
        # leaves behind, the next one finds.
        order.shuffle(waiting)
        for turn in waiting:
            tell(f"{payload.key}: {turn.way.name}", share * sum(_part(each, payload, effort) for each in turns))
            _round(world, turn, payload, effort, place, effort.calls(payload), check=False)
    return [turn.cell for turn in turns]


def _why_not(way: Way, payload: Payload, effort: Effort) -> str:
    if way.needs and not hasattr(gathers, way.needs):
        return f"rankdrill.gathers has no {way.needs}"
    if max(payload.first, payload.rest) > way.upto and not effort.slow:
        return "only with --slow"
    if way.equal_only and not payload.equal:
        return "needs payloads of one size"
    return ""


def _checked(world: World, turn: _Turn, payload: Payload, effort: Effort, place: Place) -> None:
    """A call whose result is compared. Its time counts only where nobody would wait for another."""
    _round(world, turn, payload, effort, place, calls=1, check=True)
    taken = [repetition.ms / 1e3 for repetition in turn.cell.repetitions]
    if taken and (turn.way.baseline or taken[0] < CHECKED_IS_ENOUGH_S):
        turn.cell.repetitions.clear()
        turn.spent_s, turn.done = 0.0, False


def _round(world: World, turn: _Turn, payload: Payload, effort: Effort, place: Place, calls: int, check: bool) -> None:
    began = time.monotonic()
    args = (turn.way.key, payload.key, place.directory, place.prefix, calls, check)
    outcome = world.run_job(Job(measure, args, with_context=True), deadline=DEADLINE_S)
    turn.spent_s += time.monotonic() - began
    if not outcome.ok:
        turn.cell.missing, turn.cell.broken, turn.done = outcome.summary(), True, True
        return
    turn.cell.repetitions.extend(repetitions(outcome.values))
    done = len(turn.cell.repetitions)
    least = min(BASELINE_CALLS, effort.wanted(payload)) if turn.way.baseline else 1
    turn.done = done >= effort.wanted(payload) or (done >= least and turn.spent_s >= effort.budget_s)


def _part(turn: _Turn, payload: Payload, effort: Effort) -> float:
    if turn.cell.missing:
        return 0.0
    repeated = len(turn.cell.repetitions) / effort.wanted(payload)
    return 1.0 if turn.done else min(1.0, max(repeated, turn.spent_s / effort.budget_s))
