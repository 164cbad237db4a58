"""Watches ranks through one run: who reported, who died, who can only wait for ever, and when to end it."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankdrill.diagnosis import Position, Progress, Wait, doomed, waits
from rankdrill.errors import LedgerError, RemoteError, UsageError
from rankdrill.ledger import LedgerReader, Record
from rankdrill.worlds.job import load
from rankdrill.worlds.outcome import Death, Status
from rankdrill.worlds.planned import STOP, ending_strikes, struck_by
from rankdrill.worlds.processes.client import RankHandle, TemplateClient
from rankdrill.worlds.processes.messages import Raised, Report, Returned, Up
from rankdrill.worlds.processes.motion import seconds_wanted
from rankdrill.worlds.processes.output import Streamer

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Ending", "Supervision"]

START_BOUND_S = 60.0  # for all ranks to be initialised
MOURNING_S = 0.5  # after a death, for the survivors to say what it did to them
LOOK_S = 0.1  # between two looks at the ledgers; a hang is certain when looks in a row agree
IDLE_SHARE = 0.1  # of the time between two looks; a rank that ran for less than this did nothing but wait
IDLE_LOOK_S = 1.0  # the same while nobody has ended yet
STREAM_S = 0.05
# Frames below the body: rankdrill's own and pytest's, the same for every rank.
_NOT_THE_BODY = (
    str(Path(__file__).parents[2]),
    "/_pytest/",
    "/pluggy/",
    '"<string>", line 1',
)
_NEVER_ISSUED = STOP | {"skip"}
STACKS_S = 0.5  # for a stuck rank to print its stacks
THREAD_LINE = "hread 0x"  # begins each thread's part of faulthandler's dump


@dataclass(frozen=True)
class Ending:
    """How one rank's run ended. `collectives` is -1 where the rank could not say.

    `cut` says of a stuck rank that its time was not up: it was ended because another rank was gone.
    """

    status: Status
    value: Any = None
    exception: BaseException | None = None
    traceback: str = ""
    death: Death | None = None
    at_ns: int = 0
    collectives: int = -1
    wait: Wait | None = None
    stack: str = ""
    cut: bool = False
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Supervision:
    """One run of one world, watched by sentinels: no rank is ever joined or waited for in order."""

    def __init__(
        self,
        client: TemplateClient,
        ranks: Sequence[RankHandle],
        directory: Path,
        plan: Plan | None,
        streamer: Streamer | None,
    ) -> None:
        self._client = client
        self._ranks = ranks
        self._directory = directory
        self._plan = plan
        self._streamer = streamer
        self._endings: dict[int, Ending] = {}
        self._up: set[int] = {handle.rank for handle in ranks if handle.up}
        self._ledgers: dict[int, LedgerReader] = {}
        self._progress: dict[int, Progress] = {}
        self._suspected: dict[int, int] = {}
        self._acquitted: dict[int, int] = {}
        self._ran: dict[int, float] = {}
        self._looked = 0.0
        self._mourning = False
        self._deadline = 0.0
        self._deadly = ending_strikes() if plan is not None else frozenset()

    @property
    def pending(self) -> list[RankHandle]:
        """The ranks that have not ended."""
        return [handle for handle in self._ranks if handle.rank not in self._endings]

    def watch(self, deadline: float) -> dict[int, Ending]:
        """Watch until every rank has ended, or must be ended; returns an ending for each.

        `deadline` is in seconds from when all ranks are initialised.
        """
        poller = select.poll()
        for handle in self._ranks:
            poller.register(handle.channel, select.POLLIN)
            poller.register(handle.obituary, select.POLLIN)
        end = time.monotonic() + START_BOUND_S
        started = False
        next_look = time.monotonic() + IDLE_LOOK_S
        while self.pending:
            if not started and not self._mourning and len(self._up) == len(self._ranks):
                started, end = True, time.monotonic() + deadline
                self._deadline = end
            now = time.monotonic()
            if now >= end:
                break
            if now >= next_look:
                if self._hangs_for_certain():
                    break
                next_look = now + (LOOK_S if self._endings or self._suspected else IDLE_LOOK_S)
            poller.poll(1000 * self._patience(now, end, next_look))
            before = len(self._endings)
            self._listen(poller)
            if len(self._endings) > before:
                next_look = min(next_look, time.monotonic() + LOOK_S)
                if self._some_gone() and end > time.monotonic() + MOURNING_S:
                    self._mourning, end = True, time.monotonic() + MOURNING_S
            if self._streamer:
                self._streamer.pump()
        self._end_pending()
        self._close()
        return self._endings

    def _patience(self, now: float, end: float, next_look: float) -> float:
        bounds = [end - now, next_look - now]
        if self._streamer:
            bounds.append(STREAM_S)
        return max(min(bounds), 0.0)

    def _some_gone(self) -> bool:
        """Whether a rank has died, or could not start.

        After a planned death the survivors have the whole deadline: what they do then is what is tested.
        """
        return any(
            rank not in self._up or (ending.death and not self._struck(rank, self._deadly))
            for rank, ending in self._endings.items()
        )

    def _listen(self, poller: select.poll) -> None:
        for handle in self.pending:
            had_closed = handle.reader.closed
            for frame in handle.reader.frames():
                self._hear(handle, load(frame))
            death = handle.listen()
            if death is not None and handle.rank not in self._endings:
                self._endings[handle.rank] = Ending(Status.DIED, death=death, at_ns=death.at_ns)
            ended = handle.rank in self._endings
            # A closed end stays readable for ever; polling it would spin.
            if not had_closed and (ended or handle.reader.closed):
                poller.unregister(handle.channel)
            if ended:
                poller.unregister(handle.obituary)

    def _hear(self, handle: RankHandle, message: Up | Report | Raised) -> None:
        match message:
            case Up():
                handle.up = True
                self._up.add(handle.rank)
            case Report(result=Returned(value=raw)):
                ending = Ending(Status.RETURNED, at_ns=message.at_ns, collectives=message.collectives)
                ending = replace(ending, left=message.left, notes=message.notes)
                self._endings[handle.rank] = _with_value(ending, raw, handle.rank)
            case Report(result=Raised() as raised):
                ending = _raised(raised, message.at_ns)
                self._endings[handle.rank] = replace(ending, left=message.left, notes=message.notes)
            case Raised():
                self._endings[handle.rank] = _raised(message, time.monotonic_ns())

    # ---------------------------------------------------------------------------------- certain hangs

    def _hangs_for_certain(self) -> bool:
        """Whether all that still run can only wait for ever, seen in the same steps, idle, twice in a row."""
        waiting = doomed(self._positions())
        # A rank that the plan stopped will do nothing more, and need not.
        pending = {handle.rank for handle in self.pending if not self._struck(handle.rank, STOP)}
        stuck = {rank: wait.record.index for rank, wait in waiting.items() if not self._gives_up(wait.record)}
        if set(stuck) != pending or stuck == self._acquitted:
            self._suspected = {}
            return False
        moved = self._moved(pending)
        certain = stuck == self._suspected and not moved
        self._suspected = stuck
        if certain and self._another_thread_may_act():
            self._acquitted = stuck
            return False
        return certain

    def _moved(self, pending: set[int]) -> bool:
        """Whether one of `pending` ran, or wanted to, since the last look: it may be half way through a transfer."""
        ran, self._ran = self._ran, {h.rank: seconds_wanted(h.pid) for h in self.pending if h.pid is not None}
        looked, self._looked = self._looked, time.monotonic()
        idle = IDLE_SHARE * (self._looked - looked)
        return any(rank not in ran or self._ran.get(rank, 0.0) - ran[rank] > idle for rank in pending)

    def _another_thread_may_act(self) -> bool:
        """Whether a rank has a second Python thread, which no ledger says anything about until it takes a step."""
        return any(stack.count(THREAD_LINE) > 1 for stack in self._stacks(self.pending).values())

    def _struck(self, rank: int, names: Container[str]) -> bool:
        """Whether one of these strikes of the plan has struck `rank` in this run."""
        reader = self._reader(rank) if self._plan is not None else None
        if reader is None or self._plan is None:
            return False
        return struck_by(self._plan, reader.fired(len(self._plan.faults)), names)

    def _gives_up(self, record: Record) -> bool:
        # A wait that ends by itself before the deadline may be what the test is about.
        if not record.patience_ms:
            return False
        return record.begin_ns / 1e9 + record.patience_ms / 1e3 <= self._deadline

    def _waits_of_stuck(self) -> dict[int, Wait]:
        """What the ranks that are still there wait for, at the end of the run."""
        found = waits([self._position(handle, stuck=True) for handle in self._ranks])
        # One that has issued a collective that all have reached is stuck somewhere else.
        return {rank: wait for rank, wait in found.items() if wait.missing or wait.record.state.open}

    def _positions(self) -> list[Position]:
        return [self._position(handle) for handle in self._ranks]

    def _position(self, handle: RankHandle, *, stuck: bool = False) -> Position:
        rank = handle.rank
        ended = rank in self._endings or self._struck(rank, STOP)
        reader = self._reader(rank)
        if reader is None:
            return Position(ended)
        progress = self._progress.setdefault(rank, Progress(self._entered))
        progress.take(reader.view(progress.next))
        return progress.position(ended=ended, stuck=stuck)

    def _reader(self, rank: int) -> LedgerReader | None:
        if rank not in self._ledgers:
            try:
                self._ledgers[rank] = LedgerReader(self._directory / f"rank-{rank}.ledger")
            except (FileNotFoundError, LedgerError):  # not made yet, or just being made
                return None
        return self._ledgers[rank]

    def _entered(self, record: Record) -> bool:
        # A collective that was skipped, or before which the rank was stopped or ended, was never issued.
        if self._plan is None or record.fault is None:
            return True
        fault = self._plan.faults[record.fault]
        ended = fault.where.when == "before" and fault.what.name in ending_strikes()
        return not ended and fault.what.name not in _NEVER_ISSUED

    # ---------------------------------------------------------------------------------- the end of a run

    def _end_pending(self) -> None:
        stuck = self.pending
        if not stuck:
            if self._streamer:
                self._streamer.pump(final=True)
            return
        waiting = self._waits_of_stuck()
        stacks = self._stacks(stuck)
        self._client.kill(stuck)
        for handle in stuck:
            wait, stack = waiting.get(handle.rank), _own_frames_cut(stacks.get(handle.rank, ""))
            self._endings[handle.rank] = Ending(Status.STUCK, wait=wait, stack=stack, cut=self._mourning)
        if self._streamer:
            self._streamer.pump(final=True)

    def _stacks(self, stuck: Sequence[RankHandle]) -> dict[int, str]:
        files = {handle.rank: self._directory / f"rank-{handle.rank}.stacks" for handle in stuck}
        sizes = {rank: _size(path) for rank, path in files.items()}
        self._client.kill(list(stuck), signal.SIGUSR1)
        until = time.monotonic() + STACKS_S
        while time.monotonic() < until and any(_size(path) == sizes[rank] for rank, path in files.items()):
            time.sleep(0.005)
        time.sleep(0.005)  # the last lines of a dump follow its first at once
        return {
            rank: path.read_bytes()[sizes[rank] :].decode("utf-8", "replace")
            for rank, path in files.items()
            if path.exists()
        }

    def _close(self) -> None:
        for reader in self._ledgers.values():
            reader.close()


def _with_value(ending: Ending, raw: bytes, rank: int) -> Ending:
    try:
        return replace(ending, value=load(raw))
    except Exception as error:
        refused = UsageError(f"rank {rank} returned a value that cannot be loaded here ({error!r}); return plain data")
        return replace(ending, status=Status.RAISED, exception=refused)


def _raised(raised: Raised, at_ns: int) -> Ending:
    try:
        error = load(raised.error)
    except Exception:  # its type lives in a module that only the rank can import
        error = None
    if not isinstance(error, BaseException):
        error = RemoteError(raised.type_name, raised.message, raised.traceback)
    return Ending(Status.RAISED, exception=error, traceback=raised.traceback, at_ns=at_ns)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _own_frames_cut(stack: str) -> str:
    return "\n".join(line for line in stack.splitlines() if not any(own in line for own in _NOT_THE_BODY))
