"""A recorded job while it runs, as a look at one moment shows it: how far each rank is, in what, and for how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankdrill.errors import UsageError
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording.explaining import look_at
from rankdrill.explain.recording.reading import Recorded, is_alive, read_directory
from rankdrill.explain.recording.runs import Run, chosen, told_apart
from rankdrill.explain.recording.stillness import Stillness
from rankdrill.host import boot_id, pid_namespace
from rankdrill.launch.progress import doing_in
from rankdrill.motion import is_stopped
from rankdrill.step import Site

__all__ = ["RankSeen", "Sight", "Sights"]

FEW = 16  # of each rank's newest records
STILL_S = 1.0  # without a step, before it is asked why
SHARE = 0.2  # of the time, at most, that it is asked why
SILENT_S = 60.0  # without a beat: who is on another host, and says nothing, is taken for gone


@dataclass(frozen=True)
class RankSeen:
    """One rank: `doing` in words, for so many seconds, -1 where that has no meaning; `gone` if it came to an end."""

    rank: int
    steps: int
    doing: str
    seconds: float = -1.0
    gone: bool = False


@dataclass(frozen=True)
class Sight:
    """All ranks of the newest run, and what is explained of it, if anything is. `still` is for how many seconds."""

    world_size: int
    ranks: tuple[RankSeen, ...]
    still: float = 0.0
    explanation: Explanation | None = None

    @property
    def over(self) -> bool:
        """Whether all are gone that have ever been there."""
        return bool(self.ranks) and all(each.gone for each in self.ranks)


@dataclass
class _Beats:
    """When the newest sign of life of each process was seen here: other machines have clocks of their own."""

    seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def silent_s(self, one: Recorded, now: float) -> float:
        beat = one.reader.heart_ns if one.reader is not None else 0
        if self.seen.get(one.name, (-1, 0.0))[0] != beat:
            self.seen[one.name] = beat, now
        return now - self.seen[one.name][1]


class _Explaining:
    """Asks why ranks stand still, one time after the other, in a thread: of many ranks it takes long."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._busy = False
        self._not_before = 0.0
        self._known: tuple[object, Explanation | None] = (), None

    def ask(self, run: Run, of: object) -> None:
        """Why `run` stands where `of` says, unless this is being asked, or has been of late."""
        if not self._busy and self._clock() >= self._not_before:
            self._busy = True
            threading.Thread(target=self._explain, args=(run, of), daemon=True).start()

    def known(self, of: object) -> Explanation | None:
        """What explains that they stand where `of` says."""
        explained, why = self._known
        return why if explained == of else None

    def _explain(self, run: Run, of: object) -> None:
        began = self._clock()
        try:
            look = look_at(run)
            self._known = of, None if look.moving or not look.explanation.causes else look.explanation
        finally:
            self._not_before = self._clock() + (self._clock() - began) / SHARE
            self._busy = False


class Sights:
    """Looks at one run recorded in `directory`, the newest or that `number`; `clock` is in seconds."""

    def __init__(
        self, directory: Path, clock: Callable[[], float] = time.monotonic, *, number: int | None = None
    ) -> None:
        self._directory = directory
        self._number = number
        self._clock = clock
        self._stillness = Stillness()
        self._beats = _Beats()
        self._host = boot_id(), pid_namespace()
        self._explaining = _Explaining(clock)

    def look(self) -> Sight:
        """What is to be seen now. Raises `UsageError` where nothing is recorded."""
        recorded = read_directory(self._directory)
        if not recorded:
            raise UsageError(f"nothing is recorded in {self._directory}")
        run, _ = chosen(told_apart(recorded), self._number)
        now = self._clock()
        ranks = tuple(self._seen(rank, one, now) for rank, one in sorted(run.ranks.items()))
        there = [run.ranks[each.rank] for each in ranks if not each.gone]
        self._stillness.look(there, now)
        still = self._stillness.seconds(now) if there else 0.0
        of = tuple((each.rank, each.steps, each.gone) for each in ranks)
        if still >= STILL_S or any(each.gone for each in ranks):
            self._explaining.ask(run, of)
        return Sight(run.world_size, ranks, still, self._explaining.known(of))

    def _seen(self, rank: int, one: Recorded, now: float) -> RankSeen:
        steps = one.reader.total if one.reader is not None else 0
        alive = is_alive(one)
        if one.end is not None and one.end.how != "closed":
            how = {
                "exit": "came to the end",
                "raised": f"raised {one.end.error}",
                "interrupted": "was sent a signal, and ended",
            }.get(one.end.how, one.end.how)
            site = Site(one.end.file, one.end.line, one.end.function) if one.end.file else None
            where = f", at {site}" if site is not None else ""
            # Who has said so may still be there: others of its threads, or what libraries do at the end.
            return RankSeen(rank, steps, how + where, gone=alive is not True)
        if alive is False:
            return RankSeen(rank, steps, "ended without a word", gone=True)
        if alive is None and self._beats.silent_s(one, now) > SILENT_S:
            return RankSeen(rank, steps, f"gave no sign of life for {SILENT_S:.0f} s", gone=True)
        doing, seconds = self._doing(one)
        stopped = alive is True and is_stopped(one.pid)
        return RankSeen(rank, steps, f"stopped by a signal, {doing}" if stopped else doing, seconds)

    def _doing(self, one: Recorded) -> tuple[str, float]:
        if one.reader is None:
            return one.trouble or "recorded nothing", -1.0
        view = one.reader.view(max(one.reader.total - FEW, 0))
        newest = view.last_open or view.last
        if newest is None:
            return "before its first step", -1.0
        since = newest.begin_ns if newest.state.open else max(newest.end_ns, newest.begin_ns)
        doing = doing_in(view)
        if not newest.state.open and one.reader.heart_ns > since and (at := one.reader.heart_at) is not None:
            doing = f"at {at}, after {newest.step}"
        return doing, max(0.0, (self._now_ns(one) - since) / 1e9)

    def _now_ns(self, one: Recorded) -> int:
        """By the monotonic clock of the machine that `one` is on; of another machine by what it takes for the time."""
        if one.text("boot") == self._host[0]:
            return time.monotonic_ns()
        return time.time_ns() - one.clock_ns
