"""Watches ranks through one run: who reported, who died, and when to end it."""

from __future__ import annotations

import select
import time
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankdrill.errors import RemoteError, UsageError
from rankdrill.motion import is_stopped
from rankdrill.worlds.job import load
from rankdrill.worlds.processes.client import RankHandle, TemplateClient
from rankdrill.worlds.processes.ledgers import Ledgers
from rankdrill.worlds.processes.messages import Raised, Report, Returned, Up
from rankdrill.worlds.processes.output import Pumped
from rankdrill.worlds.processes.watching.activity import activities
from rankdrill.worlds.processes.watching.at_the_end import found_at_the_end
from rankdrill.worlds.processes.watching.breaks import Breaks
from rankdrill.worlds.processes.watching.certainty import Certainty
from rankdrill.worlds.processes.watching.ending import Ending
from rankdrill.worlds.processes.watching.kernel import kernel_stack
from rankdrill.worlds.processes.watching.native import native_stacks
from rankdrill.worlds.processes.watching.positions import Positions
from rankdrill.worlds.processes.watching.processor_time import ProcessorTimes
from rankdrill.worlds.processes.watching.settling import SETTLE_LOOK_S, Settling
from rankdrill.worlds.processes.watching.stacks import of_the_body, stacks_of
from rankdrill.worlds.rank_outcome import ASLEEP, RankOutcome, Status

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Supervision", "pause_between"]

START_BOUND_S = 60.0  # for all ranks to be initialised
MOURNING_S = 0.5  # after a death, for the survivors to say what it did to them
PATIENCE_S = 60.0  # without a deadline: who gives up waiting by itself in that time is left to do so
LOOK_S = 0.07  # between two looks at the ledgers; a hang is certain when looks in a row agree
IDLE_LOOK_S = 0.1  # the same while nobody has ended yet
LOOK_SHARE = 0.1  # of the time, at most, that is spent on looks: at many ranks they take long
SUSPICIOUS_SHARE = 0.5  # the same while the last look found ranks that wait for ever, and the next may end the run
STREAM_S = 0.05
BREAK_LOOK_S = 0.1  # between two looks whether contracts were found broken by a rank that has not said so
REPORT_S = 0.3  # for that rank to report: it may be tearing down what the others would have to take part in


class Supervision:
    """One run of one world, watched by sentinels: no rank is ever joined or waited for in order."""

    def __init__(
        self,
        client: TemplateClient,
        ranks: Sequence[RankHandle],
        directory: Path,
        ledgers: Ledgers,
        plan: Plan | None,
        streamers: Sequence[Pumped],
        breaks: Breaks | None = None,
    ) -> None:
        self._client = client
        self._directory = directory
        self._ledgers = ledgers
        self._plan = plan
        self._streamers = streamers
        self._breaks = breaks
        self._endings: dict[int, Ending] = {}
        self._running = {handle.rank: handle for handle in ranks}
        self._starting = {handle.rank for handle in ranks if not handle.up}
        self._ranks = ranks
        self._stacks: dict[int, str] = {}  # as last asked for
        self._at_work: set[int] = set()  # ranks that have ended, but for a thread
        self._gone = False  # a rank has died, or could not start
        self._mourning = False
        self._broken = False  # contracts were; the run is ended for that
        self._latest = inf  # when it ends if they are not
        self._interrupted = False
        self._settling: Settling | None = None  # since the rank that noticed has reported
        self._failed = False  # a rank has ended otherwise than by returning
        self._next_break_look = 0.0
        self._times = ProcessorTimes(ledgers)
        self._poller = select.poll()
        self._heard_on: dict[int, RankHandle] = {}

    def watch(self, deadline: float) -> dict[int, Ending]:
        """Watch until every rank has ended, or must be ended; returns an ending for each.

        `deadline` is in seconds from when all ranks are initialised; it may be infinite.
        """
        for handle in self._running.values():
            self._listen_on(handle.obituary, handle)
            if not handle.reader.closed:
                self._listen_on(handle.channel.fileno(), handle)
        end, latest = time.monotonic() + START_BOUND_S, 0.0
        started = certain = False
        next_look = time.monotonic() + IDLE_LOOK_S
        self._next_break_look = time.monotonic() + BREAK_LOOK_S
        while self._running:
            if not started and not self._mourning and not self._starting:
                started, end = True, time.monotonic() + deadline
                latest = end
            now = time.monotonic()
            end = self._end_if_broken(now, end)
            if now >= end:
                break
            if self._broken:  # that some wait for ever is no news then
                next_look = inf
            if now >= next_look:
                self._times.look(self._running.values())
                certain = self._certainty.hangs(self._running, now + PATIENCE_S if latest == inf else latest)
                if certain:
                    break
                spent = time.monotonic() - now
                next_look = now + pause_between(spent, ended=bool(self._endings), suspects=self._certainty.suspects)
            before = len(self._endings)
            self._hear_all(self._patience(now, end, next_look))
            if len(self._endings) > before:
                next_look = min(next_look, time.monotonic() + LOOK_S)
                if self._gone and end > time.monotonic() + MOURNING_S:
                    self._mourning, end = True, time.monotonic() + MOURNING_S
            for streamer in self._streamers:
                streamer.pump()
        return self._ended(certain=certain)

    def cut_short(self) -> dict[int, Ending]:
        """End all that still run, where something has interrupted `watch`: it is told as at a deadline."""
        self._interrupted = True
        return self._ended(certain=False)

    def _ended(self, *, certain: bool) -> dict[int, Ending]:
        if self._running:
            self._end_running(certain=certain)
        for streamer in self._streamers:
            streamer.pump(final=True)
        return self._with_finding()

    def failures(self) -> Iterator[str]:
        """How ranks have failed so far, each with its traceback."""
        for _, ending in sorted(self._endings.items()):
            if ending.outcome.status in (Status.RAISED, Status.DIED):
                yield f"{ending.outcome}\n{ending.outcome.traceback}".rstrip()

    # Most runs are over before anybody looks where their ranks are.

    @cached_property
    def _positions(self) -> Positions:
        return Positions(self._ledgers, self._plan, len(self._ranks))

    @cached_property
    def _certainty(self) -> Certainty:
        return Certainty(self._positions, self._ask_stacks, self._ranks, self._at_work)

    def _end_if_broken(self, now: float, end: float) -> float:
        """When to end the run: at once where contracts were found broken and the rank that noticed has reported.

        It reports that it raised; only of one that kept this to itself nothing is known before the next look.
        """
        if self._breaks is None or not (self._failed or now >= self._next_break_look):
            return end
        self._next_break_look = now + BREAK_LOOK_S
        noticed = self._breaks.noticed_by
        if noticed is None:
            return end
        if not self._broken:
            self._latest, end = end, min(end, now + REPORT_S)
        self._broken = True
        if noticed in self._running:
            return end
        self._settling = self._settling or Settling(self._positions, self._running)
        return min(self._settling.end(self._running, now), self._latest)

    def _with_finding(self) -> dict[int, Ending]:
        if self._breaks is None:
            return self._endings
        finding = self._breaks.finding()
        if finding is None and self._plan is None:  # what a plan leads to is no finding
            finding = found_at_the_end(self._endings, self._ledgers)
        if finding is None:
            return self._endings
        return {
            rank: replace(ending, outcome=replace(ending.outcome, finding=finding))
            for rank, ending in self._endings.items()
        }

    def _patience(self, now: float, end: float, next_look: float) -> float:
        bounds = [end - now, next_look - now]
        if self._breaks is not None:
            bounds.append(SETTLE_LOOK_S if self._settling else BREAK_LOOK_S)
        if self._streamers:
            bounds.append(STREAM_S)
        return max(min(bounds), 0.0)

    # ---------------------------------------------------------------------------------- what ranks say

    def _listen_on(self, fd: int, handle: RankHandle) -> None:
        self._heard_on[fd] = handle
        self._poller.register(fd, select.POLLIN)

    def _stop_listening(self, fd: int) -> None:
        # What has been closed at the other end stays readable for ever; polling it would spin.
        if self._heard_on.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def _hear_all(self, patience: float) -> None:
        """Wait, at most `patience` seconds, for news, and take it from those that have some."""
        news = dict.fromkeys(self._heard_on[fd] for fd, _ in self._poller.poll(1000 * patience))
        said = [handle.reader.messages() for handle in news]
        for handle, messages in zip(news, said, strict=True):
            self._hear(handle, messages)

    def _hear(self, handle: RankHandle, messages: Sequence[Up | Report | Raised]) -> None:
        for message in messages:
            self._take(handle, message)
        death = handle.listen() if handle.rank in self._running else None
        if death is not None:  # what it said comes before how it died, whichever of them the poll has seen
            for message in handle.reader.messages():
                self._take(handle, message)
        if death is not None and handle.rank in self._running:
            self._gone = self._gone or not self._positions.ended_by_plan(handle.rank)
            self._end(Ending(RankOutcome(handle.rank, Status.DIED, death=death, at_ns=death.at_ns)))
        ended = handle.rank not in self._running
        if ended or handle.reader.closed:
            self._stop_listening(handle.channel.fileno())
        if ended:
            self._stop_listening(handle.obituary)

    def _take(self, handle: RankHandle, message: Up | Report | Raised) -> None:
        match message:
            case Up():
                handle.up = True
                self._starting.discard(handle.rank)
            case Report():
                if message.account.at_work:
                    self._at_work.add(handle.rank)
                outcome = _of_result(
                    handle.rank, message.result, at_ns=message.at_ns, left=message.left, notes=message.notes
                )
                self._end(Ending(outcome, message.account))
            case Raised():
                self._end(Ending(_of_result(handle.rank, message, at_ns=time.monotonic_ns())))

    def _end(self, ending: Ending) -> None:
        rank = ending.outcome.rank
        # After a planned death the survivors have the whole deadline: what they do then is what is tested.
        self._gone = self._gone or rank in self._starting
        self._failed = self._failed or ending.outcome.status is not Status.RETURNED
        self._endings[rank] = ending
        self._running.pop(rank, None)

    # ---------------------------------------------------------------------------------- the end of a run

    def _ask_stacks(self, handles: Collection[RankHandle]) -> dict[int, str]:
        # Who is stopped does not hear it, and would only be waited for.
        hear = [handle for handle in handles if handle.pid is None or not is_stopped(handle.pid)]
        self._stacks = stacks_of(self._client, hear, self._directory) if hear else {}
        return self._stacks

    def _end_running(self, *, certain: bool) -> None:
        """Kill those that still run, once they have said where they are; some wait for ever if that is `certain`."""
        waiting = self._certainty.waits_of_stuck(self._running)
        cut = self._mourning or self._broken or certain
        asked = self._broken or (certain and self._running.keys() <= self._stacks.keys())
        elsewhere = {} if asked or cut else self._elsewhere(waiting)
        ran, doing, in_c = self._times.since(elsewhere), activities(elsewhere), native_stacks(elsewhere)
        in_kernel = {rank: kernel_stack(pid) for rank, pid in elsewhere.items()}
        if not asked:  # not before: the signal may wake a rank from what it sleeps in
            self._ask_stacks(self._running.values())
        self._client.kill(list(self._running.values()))
        for rank in list(self._running):
            stack = "\n".join(filter(None, (of_the_body(self._stacks.get(rank, "")), in_c.get(rank))))
            asleep = certain and rank in self._certainty.asleep
            outcome = RankOutcome(
                rank,
                Status.STUCK,
                wait=None if asleep else waiting.get(rank),
                stack=stack,
                cut=cut and not asleep,
                doing=ASLEEP if asleep else doing.get(rank, ""),
                ran=ran.get(rank),
                kernel=in_kernel.get(rank, ()),
                interrupted=self._interrupted,
            )
            self._end(Ending(outcome))
        for rank, ending in self._endings.items():
            if rank in waiting and ending.outcome.status is Status.RETURNED:
                self._endings[rank] = replace(ending, outcome=replace(ending.outcome, wait=waiting[rank]))

    def _elsewhere(self, waiting: Container[int]) -> dict[int, int]:
        """The processes of ranks that are stuck in something that is no step."""
        return {
            rank: handle.pid
            for rank, handle in self._running.items()
            if rank not in waiting and handle.pid is not None and not self._positions.stopped(rank)
        }


def pause_between(spent: float, *, ended: bool, suspects: bool) -> float:
    """Seconds from one look, which took `spent`, to the next: where a rank has `ended`, or the look `suspects` some."""
    pause = LOOK_S if ended or suspects else IDLE_LOOK_S
    return max(pause, spent / (SUSPICIOUS_SHARE if suspects else LOOK_SHARE))


def _of_result(rank: int, result: Returned | Raised, **more: Any) -> RankOutcome:
    if isinstance(result, Raised):
        error, site = _error_of(result), result.site
        return RankOutcome(rank, Status.RAISED, exception=error, traceback=result.traceback, site=site, **more)
    try:
        return RankOutcome(rank, Status.RETURNED, value=load(result.value), **more)
    except Exception as error:
        refused = UsageError(f"rank {rank} returned a value that cannot be loaded here ({error!r}); return plain data")
        return RankOutcome(rank, Status.RAISED, exception=refused, **more)


def _error_of(raised: Raised) -> BaseException:
    try:
        error = load(raised.error)
    except Exception:  # its type lives in a module that only the rank can import
        error = None
    if isinstance(error, BaseException):
        return error
    return RemoteError(raised.type_name, raised.message, raised.traceback)
