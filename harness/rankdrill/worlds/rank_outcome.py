"""What one rank's run came to: what it returned or raised, how it died, or what it was stuck in."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from rankdrill.diagnosis import Finding, Wait, name_ranks
from rankdrill.diagnosis.groups import by_members
from rankdrill.diagnosis.held_locks import held_lock
from rankdrill.diagnosis.way_out import Failure
from rankdrill.errors import ContractBroken
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import Site
from rankdrill.worlds.death import Death
from rankdrill.worlds.dumps import innermost_site, threads_in
from rankdrill.worlds.failing_together import failed_together

__all__ = ["ASLEEP", "STOPPED_BY", "ProcessorTime", "RankOutcome", "RenderedError", "Status"]

STOPPED_BY = "stopped by "
"""Begins what a rank is `doing` whose process a signal has stopped."""
ASLEEP = "waiting to be woken by another of its threads, and none will"

_NOTHING_WRITTEN = LedgerView()


class Status(StrEnum):
    """How one rank's run ended."""

    RETURNED = "returned"
    RAISED = "raised"
    DIED = "died"
    STUCK = "stuck"  # still running when the run was ended: at the deadline, or when it could only wait for ever


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


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """How many seconds a rank's threads had a processor in the `of_s` since its last step, or since the run `began`."""

    had_s: float
    of_s: float
    began: bool = False

    def __str__(self) -> str:
        since = "the run began" if self.began else "its last step"
        return f"{self.had_s:.1f} s of processor time in the {self.of_s:.1f} s since {since}"


@dataclass(frozen=True)
class RankOutcome:
    """One rank's part of an `Outcome`.

    `at_ns` is when it ended (monotonic clock), 0 if it was stuck; `wait` what it waited for when it was stuck,
    or its device did, if it had returned;
    `doing` what it was doing if that is no step; `stack` the stacks of all its threads then, or when it died or stopped
    itself, if it could say so; `site` the line of the user's where that was. `fired` counts strikes by
    fault, in the plan's order; `by_plan` says that a planned fault ended the process: that it is gone is what was
    asked for. `cut` says of a stuck rank that it was ended before the deadline: another rank was gone, or waited for
    ever. `left` says what the body left in its process that can only be noticed, not put back; `notes` is what
    rankdrill has to say about the run. `finding` is what was found wrong with the whole run while it ran, the same on
    every rank. Of a rank that raised `site` is the line of the user's that did. `orphaned` says how the process that
    ranks are forked from ended, where that took this rank along. `failures` are errors that it was handling when it
    called collectives. `ran` is how long a stuck rank that was in no step had a processor since its last one, if
    anybody looked then; `kernel` the kernel's functions that it was in, innermost first, where they can be read.
    `interrupted` says of a stuck rank that somebody ended the run, by Ctrl-C or an alarm, before its deadline.
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
    ledger: LedgerView = _NOTHING_WRITTEN
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
    failures: tuple[Failure, ...] = ()
    ran: ProcessorTime | None = None
    kernel: tuple[str, ...] = ()
    interrupted: bool = False

    def with_transcript(self, stdout: str, stderr: str, ledger: LedgerView, fired: tuple[int, ...]) -> RankOutcome:
        """The same, with what the rank printed and wrote down."""
        told = object.__new__(RankOutcome)  # `replace` gives a frozen dataclass its fields one by one, on every run
        vars(told).update(vars(self), stdout=stdout, stderr=stderr, ledger=ledger, fired=fired)
        return told

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

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline found it at something of its own, which nobody had planned: it may need longer."""
        at_its_own = self.wait is None and not self.doing.startswith((STOPPED_BY, ASLEEP))
        return self.status is Status.STUCK and at_its_own and not (self.cut or self.by_plan or self.interrupted)

    @property
    def process(self) -> str:
        """What is known of its process, where it was stuck in no step: processor time, and where in the kernel."""
        told = [str(self.ran)] if self.ran is not None else []
        told += [f"in the kernel: {' < '.join(self.kernel)}"] if self.kernel else []
        return "\n".join(told)

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
        if failed := failed_together(error, self.ledger):
            own, others = failed.get(self.rank), name_ranks(failed)
            return f"raised {own}" if own else f"raised {type(error).__name__}, for what {others} raised"
        # A traceback tells where others were raised; of an exit the code is all there is, and many asserts say nothing.
        said = str(error)
        at = f" at {self.site}" if self.site is not None and (isinstance(error, SystemExit) or not said) else ""
        return f"raised {type(error).__name__}{said and f': {said}'}{at}"

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
            case Status.STUCK if self.doing == ASLEEP:
                return f"rank {self.rank} sleeps for good{self._doing()},{where}"
            case _:
                by_itself = "when the run was interrupted" if self.interrupted else "at the deadline"
                when = "when the run was ended" if self.cut else by_itself
                return f"rank {self.rank} was still running {when}{self._doing()},{where}"

    def _doing(self) -> str:
        held = held_lock(threads_in(self.stack)) if self.doing else None
        if held is not None:
            return f", {held}"
        at = innermost_site(self.stack, current=False) if self.site is None else self.site
        if self.doing == ASLEEP:
            return f", {self.doing}{f', at {at}' if at is not None else ''}"
        if self.cut and not self.doing:
            return f", at {at}" if at is not None else ""
        return f", {self.doing}{f' at {at}' if at is not None else ''}" if self.doing else ""
