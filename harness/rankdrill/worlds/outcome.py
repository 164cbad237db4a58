"""What a run came to: the ranks together, and the one verdict on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rankdrill.diagnosis import Finding, name_ranks, odd_ones
from rankdrill.diagnosis.as_json import finding_as_fields, sureness_as_fields
from rankdrill.diagnosis.stores.keys import awaits_key, awaits_lock
from rankdrill.errors import (
    ContractBroken,
    FaultNotFired,
    PeerLost,
    RankDied,
    RankLeft,
    RankStuck,
    RankVictim,
    TemplateDied,
    WorldError,
)
from rankdrill.step import SEND, Site
from rankdrill.worlds.as_json import document_of, rank_as_fields
from rankdrill.worlds.found import finding_on
from rankdrill.worlds.group import group_of
from rankdrill.worlds.places import traceback_to
from rankdrill.worlds.rank_outcome import RankOutcome, Status
from rankdrill.worlds.victims import suffering_alike

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Outcome", "RemoteTraceback", "Verdict"]

MOST_EACH = 8  # victims that are an error each


class Verdict(StrEnum):
    """How all ranks' runs ended, taken together."""

    TOGETHER = "together"  # all returned, or all raised the same type
    ASYMMETRIC = "asymmetric"
    BROKEN = "broken contract"  # ranks met in one call and did not agree there
    HANG = "hang"
    DIED = "died"


class RemoteTraceback(Exception):  # noqa: N818 (it is the cause of an error, shown above it; never raised)
    """The traceback an exception had on its rank; shown as its cause."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    def __str__(self) -> str:
        return f"\n{self.text}"


@dataclass(frozen=True, repr=False)
class Outcome:
    """What `World.run` came to.

    `culprits` lists the ranks at fault, first cause first; `victims` those that failed or hung only because of
    them; `unfired` says of each planned fault that did not strike why it did not.
    """

    ranks: tuple[RankOutcome, ...]
    verdict: Verdict
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    plan: Plan | None = None
    unfired: tuple[str, ...] = ()
    elapsed: float = 0.0

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<Outcome: {self.summary()}>"  # what ``assert outcome.ok`` shows

    @property
    def ok(self) -> bool:
        """Every rank returned, but for those that the plan itself ended, without a finding; every fault struck."""
        return not self.unfired and all(
            rank.by_plan or (rank.status is Status.RETURNED and rank.finding is None) for rank in self.ranks
        )

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the run as a whole: nothing where ranks have to speak for themselves."""
        found = finding_on(self.ranks) if self.culprits else None
        return (found,) if found is not None else ()

    @property
    def origin(self) -> Site | None:
        """The line of the user's where it went wrong: the same whichever ranks, and however many, went wrong there."""
        first = self.ranks[self.culprits[0]] if self.culprits else None
        if first is not None and first.status in (Status.RAISED, Status.DIED) and not self.findings:
            return first.origin
        sites = [site for finding in self.findings for side in finding.sides for site in side.sites]
        sites = sites or [rank.origin for rank in self.ranks if rank.status is Status.STUCK]
        return min((site for site in sites if site is not None), key=lambda site: site.place, default=None)

    @property
    def harness(self) -> str:
        """What went wrong with the harness itself, and not with any rank; empty where nothing did."""
        return next((rank.orphaned for rank in self.ranks if rank.status is Status.DIED and rank.orphaned), "")

    @property
    def values(self) -> list[Any]:
        """What each rank returned, in rank order; None for a rank that did not."""
        return [rank.value for rank in self.ranks]

    def unwrap(self) -> list[Any]:
        """The returned values in rank order, None for a rank that the plan itself ended.

        Raises an `ExceptionGroup` if any rank did not return or a planned fault did not strike: culprits first,
        equal errors of several ranks once, victims as `RankVictim`, one for each or, of many, for each way to suffer.
        """
        if self.ok:
            return self.values
        harness = [TemplateDied(self.harness)] if self.harness else []
        errors = [*harness, *self._culprit_errors(), *self._victim_errors(), *map(FaultNotFired, self.unfired)]
        raise group_of(self.summary(), errors)

    def to_json(self) -> str:
        """For machines: who is at fault, what was found, how each rank ended. `docs/json.md` has the fields."""
        return document_of(self.as_fields())

    def as_fields(self) -> dict[str, Any]:
        """What `to_json` has, before it is text."""
        return {
            "verdict": str(self.verdict),
            "ok": self.ok,
            "summary": self.summary(),
            "world_size": len(self.ranks),
            "elapsed_s": round(self.elapsed, 4),
            "culprits": list(self.culprits),
            "victims": list(self.victims),
            "harness": self.harness or None,
            "findings": [finding_as_fields(finding) | sureness_as_fields(finding) for finding in self.findings],
            "ranks": [rank_as_fields(rank, self._told_of(rank)) for rank in self.ranks],
            "unfired": list(self.unfired),
        }

    def _told_of(self, rank: RankOutcome) -> str:
        """What it did, in one line; what is in a finding has been told there."""
        found = any(rank.rank in finding.ranks for finding in self.findings)
        return str(rank) if found or rank.rank not in self.culprits else self.describe(rank.rank)

    def summary(self) -> str:
        """One line: the verdict, and who is at fault."""
        if self.ok:
            return f"{len(self.ranks)} ranks returned"
        parts = [self.harness] if self.harness else []
        parts.extend(self.describe(rank) for rank in self.culprits[:1])
        told = {rank for finding in self.findings for rank in finding.ranks} | set(self.culprits[:1])
        if also := [rank for rank in self.culprits if rank not in told]:
            parts.append(f"also at fault: {name_ranks(also)}")
        if self.victims:
            parts.append(f"victims: {name_ranks(self.victims)}")
        parts.extend(self.unfired[:1])
        return f"{self.verdict}: " + "; ".join(parts)

    def describe(self, rank: int) -> str:
        """One line on what `rank` did, as seen from the whole run."""
        culprit = self.ranks[rank]
        for finding in self.findings:
            if rank in finding.ranks:
                return str(finding)
        if rank in self._odd:
            return f"rank {rank} {self._odd[rank]}"
        return _left(culprit, self.ranks) if culprit.status is Status.RETURNED else str(culprit)

    @cached_property
    def _odd(self) -> dict[int, str]:
        if not any(rank.wait for rank in self.ranks):
            return {}
        stuck = {rank.rank: rank.wait for rank in self.ranks if rank.wait is not None}
        found = odd_ones(stuck, [rank.ledger for rank in self.ranks])
        return {rank: told for rank, told in found.items() if rank in self.culprits}

    def _culprit_errors(self) -> Iterable[BaseException]:
        alike: dict[tuple[type, str, str], list[int]] = {}
        told: set[int] = set()
        for finding in self.findings:
            told.update(finding.ranks)
            yield _found(finding, self.ranks)
        for rank in self.culprits:
            if rank in told:
                continue
            error = self.ranks[rank]
            key = (type(error.exception), str(error.exception), error.traceback or _alike(error))
            alike.setdefault(key, []).append(rank)
        for ranks in alike.values():
            yield _error(self.ranks[ranks[0]], ranks, self.ranks)

    def _victim_errors(self) -> Iterable[RankVictim]:
        victims = [self.ranks[rank] for rank in self.victims]
        if len(victims) <= MOST_EACH:
            yield from (RankVictim(str(victim), victim.rank) for victim in victims)
        else:
            yield from (RankVictim(line, ranks[0]) for ranks, line in suffering_alike(victims))


def _found(finding: Finding, ranks: tuple[RankOutcome, ...]) -> WorldError:
    first = ranks[finding.ranks[0]]
    raised = next((ranks[rank] for rank in finding.ranks if ranks[rank].status is Status.RAISED), None)
    if raised is not None and first.finding is None:
        error = ContractBroken(str(finding), first.rank)
        error.__cause__ = RemoteTraceback(raised.traceback)
        return error
    if first.finding is not None:
        return ContractBroken(str(finding), first.rank)
    return (RankLeft if first.status is Status.RETURNED else RankStuck)(str(finding), first.rank)


def _error(culprit: RankOutcome, alike: list[int], ranks: tuple[RankOutcome, ...]) -> BaseException:
    match culprit.status:
        case Status.RAISED:
            assert culprit.exception is not None
            error = culprit.exception
            error.__cause__ = RemoteTraceback(culprit.traceback)
            if culprit.origin is not None:
                error = error.with_traceback(traceback_to(culprit.origin))
            note = f"raised on {name_ranks(alike)}"
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            return error
        case Status.DIED:
            return _with_stack(RankDied(str(culprit), culprit.rank), culprit)
        case Status.STUCK:
            told = str(culprit) if len(alike) == 1 else f"{name_ranks(alike)} were {_alike(culprit)}"
            return _with_stack(RankStuck(told, culprit.rank), culprit)
        case Status.RETURNED:
            return RankLeft(_left(culprit, ranks), culprit.rank)


def _alike(rank: RankOutcome) -> str:
    """What is said of `rank` and of those that are stuck in the same way; of another, what is said of it alone."""
    told = str(rank)
    does = told.removeprefix(f"rank {rank.rank} was ")
    return does if rank.doing else told


def _with_stack(error: WorldError, culprit: RankOutcome) -> WorldError:
    if known := "\n".join(filter(None, (culprit.stack, culprit.process))):
        error.add_note(known)
    return error


def _left(culprit: RankOutcome, ranks: tuple[RankOutcome, ...]) -> str:
    waiting = [rank for rank in ranks if rank.wait and culprit.rank in rank.wait.missing]
    lost = {rank.rank: rank.error for rank in ranks if isinstance(rank.error, PeerLost)}
    causes = [failure.cause for error in lost.values() for failure in error.failures if failure.rank == culprit.rank]
    if causes and not waiting:
        return f"rank {culprit.rank} returned, and {name_ranks(lost)} waited for it: it {causes[0]}"
    if not waiting:
        return f"rank {culprit.rank} returned while others failed"
    assert waiting[0].wait is not None
    step = waiting[0].wait.record.step
    if step.message is not None:
        lacking = "receiving what" if step.op == SEND else "sending what"
        does = f"rank {waiting[0].rank} {'sends' if step.op == SEND else 'waits for'} in {step}{step.where}"
        return f"rank {culprit.rank} returned without {lacking} {does}"
    those = f"{name_ranks(rank.rank for rank in waiting)} wait{'s' if len(waiting) == 1 else ''}"
    if awaits_key(step):
        return f"rank {culprit.rank} returned without setting {step.target!r}, for which {those}{step.where}"
    if awaits_lock(step):
        return f"rank {culprit.rank} returned with the lock of {step.target!r}, for which {those}{step.where}"
    return f"rank {culprit.rank} returned without entering {step}, where {those} for it{step.where}"
