"""Watches ranks through one run: who reported, who died, who can only wait for ever, and when to end it."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankdrill.diagnosis import Position, Wait, doomed, position, waits
from rankdrill.errors import UsageError
from rankdrill.ledger import LedgerReader, Record
from rankdrill.worlds.outcome import Death, Status
from rankdrill.worlds.processes.client import RankHandle, TemplateClient
from rankdrill.worlds.processes.job import Raised, Report, Returned, Up, load
from rankdrill.worlds.processes.output import Streamer

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Ending", "Supervision"]

START_BOUND_S = 60.0  # for all ranks to be initialised
MOURNING_S = 0.5  # after a death, for the survivors to say what it did to them
LOOK_S = 0.1  # between two looks at the ledgers; a hang is certain when two looks in a row agree
IDLE_LOOK_S = 1.0  # the same while nobody has ended yet
STREAM_S = 0.05
# Frames below the body: rankdrill's own and pytest's, the same for every rank.
_NOT_THE_BODY = (
    str(Path(__file__).parents[2]),
    "/_pytest/",
    "/pluggy/",
    '"<string>", line 1',
)
STACKS_S = 0.5  # for a stuck rank to print its stacks


@dataclass(frozen=True)
class Ending:
    """How one rank's run ended. `collectives` is -1 where the rank could not say."""

    status: Status
    value: Any = None
    exception: BaseException | None = None
    traceback: str = ""
    death: Death | None = None
    at_ns: int = 0
    collectives: int = -1
    wait: Wait | None = None
    stack: str = ""


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
        self._suspected: dict[int, int] = {}
        self._deadline = 0.0

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
            if not started and len(self._up) == len(self._ranks):
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
                if any(ending.death for ending in self._endings.values()):
                    end = min(end, time.monotonic() + MOURNING_S)
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

    def _listen(self, poller: select.poll) -> None:
        for handle in self.pending:
            if not handle.reader.closed:
                for frame in handle.reader.frames():
                    self._hear(handle, load(frame))
                if handle.reader.closed:
                    poller.unregister(handle.channel)
            death = handle.listen()
            if death is not None and handle.rank not in self._endings:
                self._endings[handle.rank] = Ending(Status.DIED, death=death, at_ns=death.at_ns)

    def _hear(self, handle: RankHandle, message: Up | Report | Raised) -> None:
        match message:
            case Up():
                handle.up = True
                self._up.add(handle.rank)
            case Report(result=Returned(value=raw)):
                ending = Ending(Status.RETURNED, at_ns=message.at_ns, collectives=message.collectives)
                self._endings[handle.rank] = _with_value(ending, raw, handle.rank)
            case Report(result=Raised() as raised):
                self._endings[handle.rank] = _raised(raised, message.at_ns)
            case Raised():
                self._endings[handle.rank] = _raised(message, time.monotonic_ns())

    # ---------------------------------------------------------------------------------- certain hangs

    def _hangs_for_certain(self) -> bool:
        """Whether all that still run can only wait for ever, seen in the same steps twice in a row."""
        waiting = doomed(self._positions())
        pending = {handle.rank for handle in self.pending}
        stuck = {rank: wait.record.index for rank, wait in waiting.items() if not self._gives_up(wait.record)}
        if set(stuck) != pending:
            self._suspected = {}
            return False
        if stuck == self._suspected:
            return True
        self._suspected = stuck
        return False

    def _gives_up(self, record: Record) -> bool:
        # A wait that ends by itself before the deadline may be what the test is about.
        if not record.patience_ms:
            return False
        return record.begin_ns / 1e9 + record.patience_ms / 1e3 <= self._deadline

    def _positions(self) -> list[Position]:
        return [self._position(handle) for handle in self._ranks]

    def _position(self, handle: RankHandle) -> Position:
        rank = handle.rank
        ended = rank in self._endings
        if rank not in self._ledgers:
            try:
                self._ledgers[rank] = LedgerReader(self._directory / f"rank-{rank}.ledger")
            except FileNotFoundError:
                return Position(ended)
        return position(self._ledgers[rank].view(), ended=ended, entered=self._entered)

    def _entered(self, record: Record) -> bool:
        if self._plan is None or record.fault is None:
            return True
        return str(self._plan.faults[record.fault].what.name) != "skip"

    # ---------------------------------------------------------------------------------- the end of a run

    def _end_pending(self) -> None:
        stuck = self.pending
        if not stuck:
            if self._streamer:
                self._streamer.pump(final=True)
            return
        waiting = waits(self._positions())
        stacks = self._stacks(stuck)
        self._client.kill(stuck)
        for handle in stuck:
            self._endings[handle.rank] = Ending(
                Status.STUCK, wait=waiting.get(handle.rank), stack=stacks.get(handle.rank, "")
            )
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
            rank: _own_frames_cut(path.read_bytes()[sizes[rank] :].decode("utf-8", "replace"))
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
    return Ending(Status.RAISED, exception=load(raised.error), traceback=raised.traceback, at_ns=at_ns)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _own_frames_cut(stack: str) -> str:
    return "\n".join(line for line in stack.splitlines() if not any(own in line for own in _NOT_THE_BODY))
