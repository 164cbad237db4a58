"""How each rank stands at the end of what it wrote down: in a call that it waits in, elsewhere, ended, or gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rankdrill.diagnosis import Position, Progress
from rankdrill.diagnosis.on_device import held_on_device
from rankdrill.explain.recording.evidence import Evidence, RankEvidence
from rankdrill.ledger import ON_DEVICE, Record, State
from rankdrill.ledger.members import PARTLY_ON_DEVICE
from rankdrill.step import NO_SEQUENCE, Kind, Site, Step

__all__ = ["How", "Standing", "silent_in", "standings_of", "waiting_still"]

GONE_S = 3.5  # without a sign of life, which a process gives once a second, while others give theirs
IDLE_S = 5.0  # in which no rank took a step: then none of them will
_OF_TORCH = frozenset({"RuntimeError", "DistBackendError", "DistNetworkError", "DistError", "DistStoreError"})
PATIENT_SHARE = 0.9  # of the time after which a call gives up: who did not wait so long has lost somebody
INTERRUPTED = "interrupted"
LOST_S = 2.0  # between an error of a collective and the end of the process that let it end it


class How(StrEnum):
    """What a rank does, or did last."""

    WAITS = "waits"
    RUNS = "runs"  # in no call
    RETURNED = "returned"
    RAISED = "raised"
    LEFT = "left"  # by ``os._exit`` and the like
    GONE = "gone"  # killed, while others went on
    UNKNOWN = "unknown"  # nothing was recorded, or what was is damaged


@dataclass(frozen=True)
class Standing:
    """Of one rank. `position` is what it makes of the wait-for graph, `last` the newest call that it came out of.

    `told` says it in words, as far as they are not those of its wait. `site` is where it ended.
    """

    rank: int
    how: How
    position: Position
    last: Record | None = None
    told: str = ""
    site: Site | None = None
    at_ns: int = 0
    suffered: bool = False

    @property
    def ended(self) -> bool:
        """Whether it will never come to any call."""
        return self.how in (How.RETURNED, How.RAISED, How.LEFT, How.GONE)


def standings_of(evidence: Evidence) -> list[Standing]:
    """How every rank stands, by rank."""
    idle = _idle(evidence)
    found = [
        _standing(rank, evidence.ranks[rank], evidence, idle=idle)
        if rank in evidence.ranks
        else Standing(rank, How.UNKNOWN, Position(False, whole=False), told="recorded nothing")
        for rank in range(evidence.world_size)
    ]
    return _with_devices(found, evidence, idle=idle)


def _with_devices(found: Sequence[Standing], evidence: Evidence, *, idle: bool) -> list[Standing]:
    """Who is in no call waits in the one that its device cannot get past; if nobody has done anything for long, in the
    newest that it has handed to it.
    """
    positions = held_on_device([each.position for each in found], evidence.now_ns, stuck=idle)
    return [_with_device(each, at, evidence, idle=idle) for each, at in zip(found, positions, strict=True)]


def _with_device(standing: Standing, position: Position, evidence: Evidence, *, idle: bool) -> Standing:
    if standing.how is How.RETURNED and position.halted:
        return replace(standing, position=position)  # its device is held up, by another's that it holds up
    if standing.how is How.RUNS and (held := _at_newest(standing, position, evidence, idle=idle)).at is not None:
        return replace(standing, how=How.WAITS, position=held, told="", site=None)
    return standing


def _at_newest(standing: Standing, position: Position, evidence: Evidence, *, idle: bool) -> Position:
    last = standing.last
    if position.at is not None or not idle or last is None:
        return position
    mark = evidence.ranks[standing.rank].marks.get(last.step.target, 0)
    on_device = mark == ON_DEVICE or (mark == PARTLY_ON_DEVICE and bool(last.step.device))
    return replace(position, at=replace(last, state=State.WAITING)) if on_device else position


def silent_in(found: Sequence[Standing], evidence: Evidence) -> list[Standing]:
    """Those that others lost, and that said nothing of their end: who is killed cannot.

    A launcher kills those, too, that still wait for them: so of ranks that wait it is told only if it can be one alone.
    """
    if not any(_lost_somebody(each) for each in evidence.ranks.values()):
        return []
    quiet = [each for each in found if each.how in (How.RUNS, How.WAITS) and not each.suffered]
    quiet = [each for each in quiet if evidence.ranks[each.rank].alive is not True]
    ends = {each.rank: evidence.ranks[each.rank].end for each in quiet}
    quiet = [each for each in quiet if (end := ends[each.rank]) is None or end.how != INTERRUPTED]
    running = [each for each in quiet if each.how is How.RUNS]
    those = running or (quiet if len(quiet) == 1 else [])
    return [_killed(each, evidence) for each in those]


def _lost_somebody(here: RankEvidence) -> bool:
    """Whether its last call failed before its time was up."""
    last = here.gave_up
    if last is None:
        return False
    return not last.end_ns or last.end_ns - last.begin_ns < PATIENT_SHARE * last.patience_ms * 1e6


def _killed(standing: Standing, evidence: Evidence) -> Standing:
    here = evidence.ranks[standing.rank]
    told = "was killed: others lost it, and it did not say that it ends"
    last = standing.last
    site = _where_it_was(here) or (last.step.site if last is not None else None)
    position = replace(standing.position, ended=True, at=None)
    return Standing(standing.rank, How.GONE, position, last, told, site, here.last_ns)


def _idle(evidence: Evidence) -> bool:
    """Whether no rank has taken a step for long."""
    newest = max((_newest_ns(each) for each in evidence.ranks.values()), default=0)
    return evidence.now_ns - newest > IDLE_S * 1e9


def _newest_ns(rank: RankEvidence) -> int:
    last = rank.view.last
    return max(last.begin_ns, last.end_ns) if last is not None else 0


def _standing(rank: int, here: RankEvidence, evidence: Evidence, *, idle: bool) -> Standing:
    last = _last_call(here)
    if not here.whole:
        told = here.recorded.trouble or f"left {here.torn} records that are not whole"
        return Standing(rank, How.UNKNOWN, Position(False, whole=False), last, told)
    progress = Progress(ranks=evidence.world_size, start=here.begins, main=here.recorded.pid)
    progress.take(here.view)
    if here.gave_up is not None:
        error = here.gave_up.error or (here.end.error if here.end is not None else "")
        position = progress.position(ended=False, stuck=True)
        return Standing(rank, How.WAITS, position, last, f"gave up with {error}", suffered=True)
    end = here.end
    if end is not None and end.how == INTERRUPTED and not _others_went_on(here, end.at_ns + here.shift_ns, evidence):
        return _interrupted(rank, here, progress, last, evidence)
    if end is not None and end.how != "closed":
        return _ended(rank, here, progress, last)
    gone = _gone(here, evidence)
    if gone:
        return Standing(rank, How.GONE, progress.position(ended=True), last, gone, _where_it_was(here), here.last_ns)
    position = progress.position(ended=False, stuck=idle)
    if position.at is not None:
        return Standing(rank, How.WAITS, position, last)
    site = _where_it_was(here)
    return Standing(rank, How.RUNS, position, last, _runs(here, last, evidence), site, _newest_ns(here))


def _others_went_on(here: RankEvidence, since_ns: int, evidence: Evidence) -> bool:
    """Whether others lived on, where this one was sent a signal, or failed for want of it: it was sent to it alone.

    Who is sent one while a call waits, or fails, handles it then.
    """
    others = [each for each in evidence.ranks.values() if each is not here]
    lived_on = any(each.last_ns - since_ns > GONE_S * 1e9 for each in others)
    return lived_on or any(each.end is not None and each.end.how == "raised" and each.end.lost for each in others)


def _interrupted(
    rank: int, here: RankEvidence, progress: Progress, last: Record | None, evidence: Evidence
) -> Standing:
    """All were ended from outside: it is told by where it was then, not by how it ended."""
    end = here.end
    assert end is not None
    position = progress.position(ended=False, stuck=True)
    if position.at is not None:
        return Standing(rank, How.WAITS, position, last)
    site = Site(end.file, end.line, end.function) if end.file else None
    told = f"{_runs(here, last, evidence)}, when it was sent a signal to end"
    return Standing(rank, How.RUNS, position, last, told, site, _newest_ns(here))


def _where_it_was(here: RankEvidence) -> Site | None:
    """The line at which the main thread was the last time that somebody looked, if that was after its last step."""
    reader = here.recorded.reader
    return reader.heart_at if reader is not None and here.heart_ns > _newest_ns(here) else None


def _last_call(here: RankEvidence) -> Record | None:
    calls = here.view.where(lambda kind, state: kind is Kind.COLLECTIVE, newest_first=True)
    return next((record for record in calls if _is_call(record.step)), None)


def _is_call(step: Step) -> bool:
    return step.sequence != NO_SEQUENCE or step.message is not None


def _last_failed(here: RankEvidence) -> Record | None:
    """The call that raised last, which need not be the one that was begun last."""
    raised = here.view.where(lambda kind, state: kind is Kind.COLLECTIVE and state is State.RAISED)
    return max(raised, key=lambda record: record.end_ns, default=None)


def _runs(here: RankEvidence, last: Record | None, evidence: Evidence) -> str:
    since = _newest_ns(here) or here.recorded.told_ns + here.shift_ns
    seconds = (evidence.now_ns - since) / 1e9
    if not here.recorded.groups:
        return f"had no process group for {seconds:.1f} s"
    after = f"after {last.step}" if last is not None else "without any call of its group"
    return f"was in no call for {seconds:.1f} s {after}"


def _ended(rank: int, here: RankEvidence, progress: Progress, last: Record | None) -> Standing:
    end = here.end
    assert end is not None
    how, told = {
        "exit": (How.RETURNED, "came to the end"),
        "raised": (How.RAISED, f"raised {end.error}"),
        INTERRUPTED: (How.LEFT, "was sent a signal, and ended"),
    }.get(end.how, (How.LEFT, f"called {end.how}"))
    site = Site(end.file, end.line, end.function) if end.file else None
    at_ns, position = end.at_ns + here.shift_ns, progress.position(ended=True)
    return Standing(rank, how, position, last, told, site, at_ns, suffered=end.lost)


def waiting_still(here: RankEvidence) -> RankEvidence | None:
    """`here` as if it waited still in the call whose error ended it; None where none did.

    It lost another rank there, or waited in vain: what it was in is what says why. What is refused before anybody
    waits is a mistake of the rank's own.
    """
    last = _last_failed(here) or _last_call(here)
    if last is None or not _gave_up(last, here):
        return None
    return replace(here, view=here.view.reopened(last), gave_up=last)


def _gave_up(last: Record, here: RankEvidence) -> bool:
    end = here.end
    if end is None or not (end.how in ("exit", "raised") or end.lost):
        if last.state is not State.RAISED or not last.patience_ms:
            return False
        return last.end_ns >= max(record.end_ns for record in here.view.records)
    if last.state is not State.RAISED:
        # What DDP's reducer waits for fails in C++, and no record says so.
        by_it = end.lost or (end.how == "raised" and end.error in _OF_TORCH)
        return by_it and last.state is not State.ENDED
    soon = end.at_ns + here.shift_ns - last.end_ns < LOST_S * 1e9
    return soon and (end.lost or (bool(last.patience_ms) and (end.how == "exit" or last.error == end.error)))


def _gone(here: RankEvidence, evidence: Evidence) -> str:
    """In which words the process is gone, if it is; nothing, where all of them went at the same time."""
    others = [each for each in evidence.ranks.values() if each is not here]
    if here.alive is False and any(each.alive for each in others):
        return "was killed: its process is gone, and it did not say that it ends"
    if here.alive is not True and here.heart_ns and evidence.now_ns - here.last_ns > GONE_S * 1e9:
        ago = (evidence.now_ns - here.last_ns) / 1e9
        return f"gave no sign of life for the last {ago:.1f} s, in which others did: it was killed, or stopped"
    return ""
