"""All that one run left, by rank, by one clock: what its ranks wrote down last, and how each of them ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rankdrill.explain.recording.clocks import Clock, by_time_of_day, shifts_of
from rankdrill.explain.recording.raw import Calls, calls_of
from rankdrill.explain.recording.reading import End, Recorded, is_alive, read_to_its_end
from rankdrill.explain.recording.runs import Run
from rankdrill.ledger import DEVICE_BACKENDS, ON_DEVICE, LedgerView, Record
from rankdrill.ledger.members import PARTLY_ON_DEVICE
from rankdrill.motion import is_stopped

__all__ = ["WINDOW", "Evidence", "RankEvidence", "cut", "evidence_of", "mark_of", "with_stopped"]

WINDOW = 4096

MOST_READ = 1 << 20  # records of all ranks together
FEWEST_READ = 4096  # of one rank


@dataclass(frozen=True)
class RankEvidence:
    """What is left of one rank since its newest default group, whose first record has the index `begins`.

    `view` holds the newest `WINDOW` records, which are gone through one by one, `full` all that are read.

    `alive` is None where nobody here can say. `last_ns` is the last sign of life, `heart_ns` the last of those that its
    process gives once a second, 0 where it gave none. `gave_up` is the call whose error ended it, as it was recorded.
    `stopped` says that a signal has stopped its process, which is on this host, and that nobody has had it go on.
    """

    recorded: Recorded
    view: LedgerView
    calls: Mapping[str, Calls]
    begins: int
    alive: bool | None
    last_ns: int
    heart_ns: int
    full: LedgerView
    torn: int = 0
    shift_ns: int = 0
    gave_up: Record | None = None
    stopped: bool = False

    @property
    def end(self) -> End | None:
        return self.recorded.end

    @property
    def whole(self) -> bool:
        """Whether its newest records can all be read."""
        return self.recorded.reader is not None and not self.torn

    @property
    def marks(self) -> Mapping[str, int]:
        """Of each group, by its label, whether calls go on, on a device, after they were waited for."""
        return {group.label: mark_of(group.backend) for group in self.recorded.groups}


@dataclass(frozen=True)
class Evidence:
    """All ranks of a run, those without a record left out; `now_ns` is when the newest of it was written."""

    world_size: int
    ranks: Mapping[int, RankEvidence]
    missing: tuple[int, ...]
    now_ns: int
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    by_time_of_day: tuple[int, ...] = ()
    """The ranks whose clock nothing but that brings together with the others'."""

    @property
    def views(self) -> list[LedgerView]:
        """By rank; empty where there is none."""
        return [self.ranks[rank].view if rank in self.ranks else LedgerView() for rank in range(self.world_size)]


def evidence_of(run: Run) -> Evidence:
    """Read what there is of `run`, now."""
    most = max(MOST_READ // max(len(run.ranks), 1), FEWEST_READ)
    generation = max((_generations(one) for one in run.ranks.values()), default=0)
    found = {rank: _of_rank(one, most, generation) for rank, one in run.ranks.items()}
    found, apart = _by_one_clock(found)
    size = run.world_size
    now = max((each.last_ns for each in found.values()), default=0)
    if any(each.alive for each in found.values()):
        here = next(each for each in found.values() if each.alive)
        now = max(now, time.monotonic_ns() + here.shift_ns)
    missing = tuple(rank for rank in range(size) if rank not in found)
    return Evidence(size, dict(sorted(found.items())), missing, now, by_time_of_day=apart)


def with_stopped(evidence: Evidence) -> Evidence:
    """`evidence` with who is stopped now: after all of it was read, since a signal does not stop all at once."""
    found = {
        rank: replace(each, stopped=each.alive is True and is_stopped(each.recorded.pid))
        for rank, each in evidence.ranks.items()
    }
    return replace(evidence, ranks=found)


def _generations(one: Recorded) -> int:
    """How many default groups the process has had."""
    return sum(group.rank is not None for group in one.groups)


def _of_rank(one: Recorded, most: int, generation: int) -> RankEvidence:
    reader = one.reader
    alive = is_alive(one)
    if alive is False:
        one = read_to_its_end(one)
    if reader is None:
        return RankEvidence(one, LedgerView(), {}, 0, alive, one.told_ns, 0, LedgerView())
    job = one.job
    begins = min(max(job.record, 0), reader.total) if job is not None else 0
    if generation > 1 and _generations(one) < generation:
        begins = reader.total  # it has not come to the group that the others have
    full = reader.view(max(begins, reader.total - most), groups_since=begins)
    view = cut(full, len(full.raw) - WINDOW, begins)
    calls = dict(calls_of(full))
    signs = [reader.heart_ns, one.told_ns]
    for of_group in calls.values():
        signs += [int(of_group["begin"].max()), int(of_group["end"].max())]
    newest = view.last
    if newest is not None:
        signs += [newest.begin_ns, newest.end_ns]
    return RankEvidence(one, view, calls, begins, alive, max(signs), reader.heart_ns, full, full.torn)


def cut(full: LedgerView, start: int, begins: int) -> LedgerView:
    """`WINDOW` records of `full`, from its `start`-th on."""
    start = max(start, 0)
    first = full.first + start
    raw = full.raw[start : start + WINDOW]
    return replace(full, raw=raw, first=first, dropped=max(first - begins, 0))


def mark_of(backend: str) -> int:
    """What a rank writes down of a group with this ``backend``, ``cuda:nccl`` say, beside its members."""
    on_device = [part.rpartition(":")[2] in DEVICE_BACKENDS for part in backend.split(",")]
    return ON_DEVICE if all(on_device) else PARTLY_ON_DEVICE if any(on_device) else 0


def _by_one_clock(found: Mapping[int, RankEvidence]) -> tuple[dict[int, RankEvidence], tuple[int, ...]]:
    # Of whom no log says which machine it was on, it is taken for granted that it was no other.
    home = next((each.recorded for each in found.values() if each.recorded.text("boot")), None)
    clocks = {
        rank: _clock(each.recorded if each.recorded.text("boot") or home is None else home)
        for rank, each in found.items()
    }
    if len({clock.machine for clock in clocks.values()}) < 2:
        return dict(found), ()
    at_once = {
        rank: {group: calls for group, calls in each.calls.items() if not each.marks.get(group)}
        for rank, each in found.items()
    }
    shifts = shifts_of(clocks, at_once)
    return _shifted(found, shifts), by_time_of_day(clocks, at_once)


def _shifted(found: Mapping[int, RankEvidence], shifts: Mapping[int, int]) -> dict[int, RankEvidence]:
    return {
        rank: replace(
            each,
            view=replace(each.view, shift_ns=shifts[rank]),
            full=replace(each.full, shift_ns=shifts[rank]),
            last_ns=each.last_ns + shifts[rank] if each.last_ns else 0,
            heart_ns=each.heart_ns + shifts[rank] if each.heart_ns else 0,
            shift_ns=shifts[rank],
        )
        for rank, each in found.items()
    }


def _clock(one: Recorded) -> Clock:
    return Clock(one.text("boot"), one.clock_ns)
