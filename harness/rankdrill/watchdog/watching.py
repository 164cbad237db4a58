"""The watchdog's rounds: who lives, who moves, and when to say that nobody does. It takes no part in the job."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rankdrill.diagnosis import Confidence
from rankdrill.errors import UsageError
from rankdrill.explain.recording import Look, look_at
from rankdrill.explain.recording.reading import Recorded, read_directory
from rankdrill.explain.recording.runs import Run, told_apart
from rankdrill.explain.recording.standing import How
from rankdrill.explain.recording.stillness import Mark, Stillness
from rankdrill.host import boot_id, pid_namespace, started_at
from rankdrill.watchdog.asking import ask
from rankdrill.watchdog.report import write_report
from rankdrill.watchdog.starting import is_replaced, take

__all__ = ["Watchdog"]

LOOK_S = 1.0
MOST_BETWEEN_S = 5.0  # two looks, that count: who was stopped, as whole jobs are, has not seen anybody stand still
FIRST_S = 6.0  # without a step before it is asked why: `explain` takes ranks for idle after 5
UNUSUAL = 2.0  # times as long as anybody was still before he went on
CONFIRM_S = 1.0
SHARE = 0.05  # of its time, at most, that it asks why
MOST_REPORTS = 8  # on one run

NOTHING, STILL, CERTAIN = 0, 1, 2


@dataclass
class _Watched:
    """One run: how long it has been still, what was said of that, and when to look into it next."""

    stillness: Stillness = field(default_factory=Stillness)
    next_at: float = 0.0  # seconds of stillness
    not_before: float = 0.0  # by the watchdog's time
    said: int = NOTHING
    said_of: Mapping[str, Mark] = field(default_factory=dict)
    reports: int = 0


class Watchdog:
    """Watches what is recorded in `directory` by processes of this host that asked for it; has the `lock`.

    `say` is told how often something was reported, or would have been, of one run.
    """

    def __init__(self, directory: Path, lock: int, say: Callable[[int], None]) -> None:
        self._directory = directory
        self._lock = lock
        self._say_how_many = say
        self._watched: dict[str, _Watched] = {}
        self._seen: object = None  # of the directory, as last read
        self._runs: list[Run] = []
        self._now = 0.0  # seconds spent looking
        self._host = boot_id(), pid_namespace()

    def watch(self) -> None:
        """Until nobody is left who asked for it."""
        before = time.monotonic()
        while self._round() or self._is_wanted_again():
            time.sleep(LOOK_S)
            after = time.monotonic()
            self._now += min(after - before, MOST_BETWEEN_S)
            before = after

    def _is_wanted_again(self) -> bool:
        """Give the lock back; a rank that began meanwhile, and found that it was taken, is seen here."""
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            return self._round() and take(self._lock)
        return False

    def _round(self) -> bool:
        """One look at everybody; whether there is anybody to look at."""
        if not self._read() or is_replaced(self._directory, self._lock):
            return False
        there = False
        for run in self._runs:
            there = there or bool(self._living(run))
            if ranks := self._ranks(run):
                name = min(one.name for one in run.ranks.values())
                self._look(run, ranks, self._watched.setdefault(name, _Watched()))
        return there

    def _read(self) -> bool:
        """Read who is recorded, if that has changed; False where the directory is gone."""
        try:
            names = sorted(name for name in os.listdir(self._directory) if name.endswith(".log"))
            logs = [self._directory / f"{one.name}.log" for run in self._runs for one in self._living(run)]
            seen = names, [path.stat().st_size for path in logs if path.exists()]
            if seen != self._seen:
                self._runs = told_apart(read_directory(self._directory))
                self._seen = seen
        except (OSError, UsageError):
            return False
        return True

    def _living(self, run: Run) -> list[Recorded]:
        """Those of `run` that are watched: of this host, alive, recorded still, in a run that asked for it.

        Also who is no rank, or not yet.
        """
        if _asked(run) is None:
            return []
        return [one for one in (*run.ranks.values(), *run.strangers) if self._is_here(one)]

    def _ranks(self, run: Run) -> dict[int, Recorded]:
        """The ranks among them."""
        living = {one.name for one in self._living(run)}
        return {rank: one for rank, one in run.ranks.items() if one.name in living}

    def _is_here(self, one: Recorded) -> bool:
        if (one.text("boot"), one.text("pids")) != self._host or (one.end is not None and one.end.how == "closed"):
            return False
        started = started_at(one.pid)
        return bool(started) and started == one.number("started")

    # ------------------------------------------------------------------------------------ one that is still

    def _look(self, run: Run, alive: Mapping[int, Recorded], watched: _Watched) -> None:
        hang_after = _asked(run)
        assert hang_after is not None
        watched.stillness.look(alive.values(), self._now)
        still = watched.stillness.seconds(self._now)
        first = min(max(FIRST_S, UNUSUAL * watched.stillness.longest), hang_after)
        if watched.said and not _as_before(watched, self._now):
            watched.said = NOTHING
        if still < first:
            watched.next_at = first
        due = still >= max(watched.next_at, first) or (still >= hang_after and watched.said == NOTHING)
        if not due or self._now < watched.not_before:
            return
        if watched.said == CERTAIN or watched.reports >= MOST_REPORTS:
            return
        began = time.monotonic()
        self._look_into(run, watched, still, hang_after)
        watched.next_at = 2 * still if still >= hang_after else min(2 * still, hang_after)
        watched.not_before = self._now + (time.monotonic() - began) / SHARE

    def _look_into(self, run: Run, watched: _Watched, still: float, hang_after: float) -> None:
        look = self._looked(run)
        if look is None:
            return
        if _is_certain(look):
            time.sleep(CONFIRM_S)
            again = self._looked(run)
            if again is not None and _is_certain(again) and _who(again) == _who(look):
                self._say(again, watched, still, CERTAIN, "this job hangs for ever: that is certain")
                return
        if still >= hang_after and watched.said == NOTHING:
            self._say(look, watched, still, STILL, f"this job has not moved for {still:.0f} s, as far as is seen here")

    def _looked(self, run: Run) -> Look | None:
        """What there is of `run` now."""
        names = {one.name for one in run.ranks.values()}
        with suppress(OSError, UsageError):
            fresh = told_apart(read_directory(self._directory))
            now = next((each for each in fresh if names & {one.name for one in each.ranks.values()}), None)
            return look_at(now) if now is not None else None
        return None

    def _say(self, look: Look, watched: _Watched, still: float, said: int, why: str) -> None:
        seen = ask(self._directory, self._ranks(look.run))
        write_report(self._directory, look, seen, why)  # where it cannot be written it is not tried for ever
        watched.said, watched.reports = said, watched.reports + 1
        self._say_how_many(watched.reports)
        watched.said_of = watched.stillness.marks(self._now, min(still, FIRST_S))


def _asked(run: Run) -> float | None:
    """After how long its ranks want to hear of it: the least that one of them said."""
    every = *run.ranks.values(), *run.strangers
    return min((one.hang_after for one in every if one.hang_after is not None), default=None)


def _as_before(watched: _Watched, now: float) -> bool:
    """Whether all of whom it was said have not moved since."""
    here = watched.stillness.marks(now, 0.0)
    return all(here.get(name) == mark for name, mark in watched.said_of.items())


def _is_certain(look: Look) -> bool:
    """Whether one that lives waits for ever, and it is certain why, if not always who is at fault."""
    waits = any(each.alive and rank in look.waiting for rank, each in look.evidence.ranks.items())
    if look.moving or not waits or not look.explanation.causes:
        return False
    cause = look.explanation.causes[0]
    # Of two that came apart it is never known which of them is right.
    nobody_known = not cause.finding.culprits and all(each.how is not How.UNKNOWN for each in look.standings)
    return cause.confidence is Confidence.CERTAIN or (cause.confidence is Confidence.LIKELY and nobody_known)


def _who(look: Look) -> list[tuple[object, ...]]:
    return [(cause.finding.kind, cause.finding.culprits, cause.finding.step) for cause in look.explanation.causes]
