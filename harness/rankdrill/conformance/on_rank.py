"""The rank's side of a case: call the gather under the fault, call it again without, and write down what came."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from rankdrill.conformance.adapter import Adapter, Setting
from rankdrill.conformance.brief import brief
from rankdrill.conformance.caller_faults import REPEATED, SKIPPED
from rankdrill.conformance.leftovers import Belongings
from rankdrill.conformance.payloads import SMALL
from rankdrill.conformance.survey import StrikePoint, Surveyor
from rankdrill.errors import UsageError
from rankdrill.step import Kind
from rankdrill.worlds.context import RankContext

__all__ = ["RankReport", "Seen", "Trial", "read_report", "run_trial"]

_POLL_S = 0.01
_WARM = "conformance.warm"  # what this rank has already called once, in RankContext.kept


@dataclass(frozen=True, slots=True)
class Trial:
    """What every rank of a case is told.

    `timeout` is for the first call, `patience` for the others. `notes` is a directory of the drill's own. `thaws` is
    the rank that the plan stops, to be continued when the others are done; `strays` is the rank that
    makes the `caller_fault`; `again` asks for the second call, `survey`
    for the points of the first, `tells` for what was sent and what came.
    """

    adapter: Adapter
    payload: str
    directory: str
    notes: str
    timeout: float
    patience: float
    thaws: int | None = None
    caller_fault: str | None = None
    strays: int = -1
    again: bool = True
    survey: bool = False
    tells: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What one rank saw of one call. `error` is a type's name, empty if the call returned; `blamed` the ranks that
    the error names, None if it is of no type that could; `wrong` says where a returned value is not the right one.
    `sent` and `came` tell of payload and result in a line each, where that was asked for.
    """

    began_ns: int
    ended_ns: int
    error: str = ""
    message: str = ""
    blamed: tuple[int, ...] | None = None
    wrong: str = ""
    sent: str = ""
    came: str = ""


@dataclass(frozen=True, slots=True)
class RankReport:
    """What one rank saw of a case; `left` is what its process holds afterwards that it did not hold before."""

    pid: int
    first: Seen | None = None
    second: Seen | None = None
    left: tuple[str, ...] = ()
    points: tuple[StrikePoint, ...] = ()
    done: bool = False


def run_trial(context: RankContext, trial: Trial) -> None:
    """Run `trial` on this rank. What it saw is on disk at every moment, for a rank that may not live to return it."""
    rank, size, closed = context.index, context.world_size, context.boundary.closed
    room = trial.adapter.payloads[trial.payload].room
    first_setting = Setting(rank, size, trial.directory, room, trial.timeout)
    setting = replace(first_setting, timeout=trial.patience)
    shared_memory = Kind.SHM in trial.adapter.kinds
    _warm_up(context, trial, setting)
    with closed():
        report = RankReport(os.getpid())
        _write(trial.notes, rank, report)
        before = Belongings.now(shared_memory=shared_memory)
    surveyor = Surveyor(context.boundary)
    with context.boundary.recording([surveyor]) if trial.survey else nullcontext():
        meet = _call_once if trial.caller_fault is None else _out_of_step
        first = meet(context, trial, first_setting)
    with closed():
        report = replace(report, first=first, points=tuple(surveyor.points))
        _write(trial.notes, rank, report)
        if trial.thaws is not None and trial.thaws != rank:
            _thaw(trial, rank, size)
    # After an error of no known type nothing is promised; the first call decides the case.
    if trial.again and (not first.error or first.blamed is not None):
        second = _call(context, trial, setting, 2)
        report = replace(report, second=second)
    with closed():
        gc.collect()
        left = Belongings.now(shared_memory=shared_memory).left_since(before)
        _write(trial.notes, rank, replace(report, left=left, done=True))


def read_report(notes: str, rank: int) -> RankReport | None:
    """What `rank` has written down so far; None if it never began."""
    try:
        return _load((Path(notes) / f"rank-{rank}").read_bytes())
    except FileNotFoundError:
        return None


def _warm_up(context: RankContext, trial: Trial, setting: Setting) -> None:
    # What a gather keeps for good (a group made once, imports) is no leak, and makes the steps of all cases alike.
    warm = context.kept.setdefault(_WARM, set())
    if trial.adapter.name not in warm:
        warm.add(trial.adapter.name)
        with context.boundary.recording():  # without the plan: nothing strikes here, and a hang is still seen
            _call(context, replace(trial, payload=SMALL), setting, 0)


def _call_once(context: RankContext, trial: Trial, setting: Setting) -> Seen:
    return _call(context, trial, setting, 1)


def _out_of_step(context: RankContext, trial: Trial, setting: Setting) -> Seen:
    """What came of the call in which the ranks are out of step. Two calls in the program, as the gather sees it."""
    strays = setting.rank == trial.strays
    if not strays or trial.caller_fault == REPEATED:
        seen = _call(context, trial, setting, 1)
        if seen.error or trial.caller_fault == SKIPPED:
            return seen
    if strays and trial.caller_fault == REPEATED:
        seen = _call(context, trial, setting, 1)
        if seen.error or seen.wrong:
            return seen
    return _call(context, trial, setting, 2)


def _call(context: RankContext, trial: Trial, setting: Setting, turn: int) -> Seen:
    adapter, rank, size = trial.adapter, setting.rank, setting.size
    with context.boundary.closed():
        payload, wanted = _from_adapter(trial, rank, size, turn)
        sent = brief(payload) if trial.tells else ""
    setting = replace(setting, group=dist.group.WORLD, members=tuple(range(size)), turn=turn)
    began = time.monotonic_ns()
    try:
        got = adapter.call(payload, setting)
    except BaseException as error:  # whatever it is, it is what the drill is about
        ended = time.monotonic_ns()
        return Seen(began, ended, type(error).__name__, str(error), adapter.blames(error), sent=sent)
    ended = time.monotonic_ns()
    with context.boundary.closed():
        came = brief(got) if trial.tells else ""
        return Seen(began, ended, wrong=adapter.differs(got, wanted) or "", sent=sent, came=came)


def _from_adapter(trial: Trial, rank: int, size: int, turn: int) -> tuple[Any, Any]:
    """What this rank contributes and what it has to receive. Raises `UsageError` where the adapter cannot say."""
    adapter = trial.adapter
    try:
        payload = adapter.payload(trial.payload, rank, size, turn)
        return payload, adapter.expected(trial.payload, rank, size, turn)
    except Exception as error:
        raise UsageError(
            f"the adapter {adapter.name!r}, and not its gather, failed with the payload {trial.payload!r}: "
            f"{type(error).__name__}: {error}; see its dress, receives and payloads"
        ) from error


def _thaw(trial: Trial, rank: int, size: int) -> None:
    """Continue the stopped rank once all others are done; the last of them to be done does it."""
    others = [other for other in range(size) if other != trial.thaws]
    bound = time.monotonic() + 2 * trial.timeout
    while rank == others[0] and time.monotonic() < bound and not all(_is_done(trial, other) for other in others):
        time.sleep(_POLL_S)
    stopped = read_report(trial.notes, trial.thaws) if trial.thaws is not None else None
    if rank == others[0] and stopped is not None:
        os.kill(stopped.pid, signal.SIGCONT)


def _is_done(trial: Trial, rank: int) -> bool:
    report = read_report(trial.notes, rank)
    return report is not None and report.first is not None


def _write(notes: str, rank: int, report: RankReport) -> None:
    path = Path(notes) / f"rank-{rank}"
    aside = path.with_suffix(".part")
    aside.write_bytes(pickle.dumps(report))
    os.replace(aside, path)


def _load(raw: bytes) -> RankReport:
    report = pickle.loads(raw)  # written by a rank of this drill into the drill's own directory
    assert isinstance(report, RankReport)
    return report
