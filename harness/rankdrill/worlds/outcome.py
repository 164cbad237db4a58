"""What a run came to, rank by rank, and the one verdict on it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rankdrill.diagnosis import Finding, Wait, name_ranks, odd_ones
from rankdrill.diagnosis.groups import by_members
from rankdrill.diagnosis.held_locks import held_lock
from rankdrill.diagnosis.stores.keys import awaits_key, awaits_lock
from rankdrill.errors import (
    ContractBroken,
    FaultNotFired,
    RankDied,
    RankLeft,
    RankStuck,
    RankVictim,
    TemplateDied,
    WorldError,
)
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import SEND, Site
from rankdrill.worlds.death import Death
from rankdrill.worlds.dumps import innermost_site, threads_in
from rankdrill.worlds.found import finding_on
from rankdrill.worlds.group import group_of
from rankdrill.worlds.places import traceback_to

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Death", "Outcome", "RankOutcome", "RemoteTraceback", "RenderedError", "Status", "Verdict"]


class Status(StrEnum):
    """How one rank's run ended."""

    RETURNED = "returned"
    RAISED = "raised"
    DIED = "died"
    STUCK = "stuck"  # still running when the run was ended: at the deadline, or when it could only wait for ever


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


class RenderedError(Exception):
    """An exception that its rank has already rendered, as pytest does with rewritten assertions.

    `text` is the rendering, `crash` its last line, `error` the pickled exception itself, empty if it cannot be.
    """

    def __init__(self, text: str, crash: str, error: bytes, *more: Any) -> None:
        self.text = text
        self.crash = crash
        self.error = error
        super().__init__(text, crash, error, *more)

    def __str__(self) -> str:
        return self.crash

    @cached_property
    def original(self) -> BaseException:
        """The exception itself, or this stand-in where it cannot be had here."""
        try:
            error = pickle.loads(self.error)  # written by this run's own rank, over its private socket
        except Exception:  # its type may live in a module that only the ranks have imported
            return self
        return error if isinstance(error, BaseException) else self


@dataclass(frozen=True)
class RankOutcome:
    """One rank's part of an `Outcome`.

    `at_ns` is when it ended (monotonic clock), 0 if it was stuck; `wait` what it waited for when it was stuck;
    `doing` what it was doing if that is no step; `stack` the stacks of all its threads then, or when it died or stopped
    itself, if it could say so; `site` the line of the user's where that was. `fired` counts strikes by
    fault, in the plan's order; `by_plan` says that a planned fault ended the process: that it is gone is what was
    asked for. `cut` says of a stuck rank that it was ended before the deadline: another rank was gone, or waited for
    ever. `left` says what the body left in its process that can only be noticed, not put back; `notes` is what
    rankdrill has to say about the run. `finding` is what was found wrong with the whole run while it ran, the same on
    every rank. Of a rank that raised `site` is the line of the user's that did. `orphaned` says how the process that
    ranks are forked from ended, where that took this rank along.
    """

    rank: int
    status: Status
    value: Any = None
    exception: BaseException | None = None
    traceback: str = ""
    death: Death | None = None
    at_ns: int = 0
    stdout: str = ""
    stderr: str = ""
    ledger: LedgerView = field(default_factory=lambda: LedgerView((), 0))
    fired: tuple[int, ...] = ()
    wait: Wait | None = None
    doing: str = ""
    stack: str = ""
    by_plan: bool = False
    cut: bool = False
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    finding: Finding | None = None
    site: Site | None = None
    orphaned: str = ""

    @property
    def error(self) -> BaseException | None:
        """What the rank raised, whoever rendered it."""
        return self.exception.original if isinstance(self.exception, RenderedError) else self.exception

    @property
    def step(self) -> Record | None:
        """The step the rank was in when it ended or was ended, or None if it was in none."""
        return self.ledger.last_open

    @property
    def last_call(self) -> Record | None:
        """The newest step that says from which line it was taken; that of a file, say, does not."""
        return next((record for record in reversed(self.ledger.records) if record.step.site is not None), None)

    @property
    def origin(self) -> Site | None:
        """The line of the user's where it ended, or the last one known before."""
        site = self.site or (self.death.site if self.death is not None else None)
        if site is not None:
            return site
        at = self.step or self.last_call
        return at.step.site if at is not None else None

    def _where(self) -> str:
        if self.step:
            at = self.death.site if self.death is not None else None
            told = at is not None and self.step.step.site is not None and at.place == self.step.step.site.place
            return f" in {self.step.step}{'' if told else self.step.step.where}"
        last, passed = self.ledger.last, self.last_call
        if last is None:
            return " before its first step"
        if passed is None or passed is last:
            return f" after {last.step}{last.step.where}"
        return f" after {passed.step}{passed.step.where}, then {last.step}"

    def _died(self) -> str:
        if self.orphaned:
            return f"went with the process that ranks are forked from,{self._where()}"
        assert self.death is not None
        more = self.death.how or self.death.site is not None
        return f"{self.death}{',' if more else ''}{self._where()}" + (", as planned" if self.by_plan else "")

    def _raised(self) -> str:
        error = self.error
        if self.finding is not None and isinstance(error, ContractBroken):
            last = self.ledger.last
            return f"noticed it{f' at {last.step.site}' if last and last.step.site else ''}"
        # A traceback tells where others were raised; of an exit the code is all there is.
        at = f" at {self.site}" if isinstance(error, SystemExit) and self.site is not None else ""
        return f"raised {type(error).__name__}: {error}{at}"

    def __str__(self) -> str:
        return by_members(self._told(), [self.ledger])

    def _told(self) -> str:
        where = self._where()
        match self.status:
            case Status.RETURNED:
                return f"rank {self.rank} returned"
            case Status.RAISED:
                return f"rank {self.rank} {self._raised()}"
            case Status.DIED:
                return f"rank {self.rank} {self._died()}"
            case Status.STUCK if self.by_plan:
                return f"rank {self.rank} stopped{where}, as planned"
            case Status.STUCK if self.finding is not None:
                return f"rank {self.rank} was{where} when the run was ended"
            case Status.STUCK if self.wait:
                return f"rank {self.rank} {self.wait}"
            case _:
                when = "when the run was ended" if self.cut else "at the deadline"
                return f"rank {self.rank} was still running {when}{self._doing()},{where}"

    def _doing(self) -> str:
        held = held_lock(threads_in(self.stack)) if self.doing else None
        if held is not None:
            return f", {held}"
        at = innermost_site(self.stack, current=False) if self.site is None else self.site
        if self.cut and not self.doing:
            return f", at {at}" if at is not None else ""
        return f", {self.doing}{f' at {at}' if at is not None else ''}" if self.doing else ""


@dataclass(frozen=True)
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
        equal errors of several ranks once, victims as `RankVictim`.
        """
        if self.ok:
            return self.values
        harness = [TemplateDied(self.harness)] if self.harness else []
        errors = [*harness, *self._culprit_errors(), *self._victim_errors(), *map(FaultNotFired, self.unfired)]
        raise group_of(self.summary(), errors)

    def to_json(self) -> str:
        """For machines: who is at fault, what was found, how each rank ended. `docs/json.md` has the fields."""
        from rankdrill.worlds.as_json import outcome_to_json

        return outcome_to_json(self)

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
        for rank in self.victims:
            yield RankVictim(str(self.ranks[rank]), rank)


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
    if culprit.stack:
        error.add_note(culprit.stack)
    return error


def _left(culprit: RankOutcome, ranks: tuple[RankOutcome, ...]) -> str:
    waiting = [rank for rank in ranks if rank.wait and culprit.rank in rank.wait.missing]
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
