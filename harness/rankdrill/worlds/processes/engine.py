"""Ranks as processes: start them, give them bodies, throw them away when one misbehaved."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import select
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from rankdrill.errors import UsageError
from rankdrill.strictness import Contracts
from rankdrill.worlds.call import NamedCall
from rankdrill.worlds.hosts import ranks_per_host
from rankdrill.worlds.job import Job, Place, dump
from rankdrill.worlds.planned import as_planned
from rankdrill.worlds.private import remove_segments
from rankdrill.worlds.processes.alike import imported_here
from rankdrill.worlds.processes.client import RankHandle, TemplateClient
from rankdrill.worlds.processes.environment import for_ranks, read_environment
from rankdrill.worlds.processes.fitness import fit_for_another
from rankdrill.worlds.processes.looks import Look, Looks
from rankdrill.worlds.processes.means import require_means
from rankdrill.worlds.processes.messages import RankSpec
from rankdrill.worlds.processes.output import Pumped, Tell
from rankdrill.worlds.processes.transcripts import Transcripts
from rankdrill.worlds.processes.watching import (
    Breaks,
    Ending,
    Inquest,
    Supervision,
    stacks_of,
    where_ranks_are,
)
from rankdrill.worlds.processes.wire import send_frame
from rankdrill.worlds.rank_outcome import RankOutcome, Status

__all__ = ["ProcessEngine"]

GROUP_TIMEOUT_S = 1800.0  # torch's own default for gloo; the controller's deadline comes first
SEND_BOUND_S = 60.0  # for all ranks to take a job; fresh ones take it when they are initialised
DEATH_BOUND_S = 5.0
"""How long a killed process may take to be gone; the kernel may be busy freeing its memory."""


_Here: TypeAlias = tuple[tuple[str, ...], str, dict[bytes, bytes]]


class ProcessEngine:
    """The processes of one world. `run` starts them when there are none, and keeps them while they are healthy."""

    def __init__(
        self,
        n: int,
        *,
        backend: str,
        device: str,
        preload: Sequence[str] = (),
        prepare: NamedCall | None = None,
        init: bool = True,
        tell_log: Tell | None = None,
        contracts: Contracts = True,
        look: Look | None = None,
        mpi: bool = False,
    ) -> None:
        self._n = n
        self._mpi = mpi
        self._look = look
        self._contracts = contracts
        self._breaks: Breaks | None = None
        self._inquest: Inquest | None = None
        self._tell_log = tell_log
        self._init = init
        self._preload = preload
        self._prepare = prepare
        self._backend = backend
        self._device = device
        self._ranks: list[RankHandle] = []
        self._directory: Path | None = None
        self._transcripts: Transcripts | None = None
        self._obituaries = select.poll()
        self._client: TemplateClient | None = None
        self._port: socket.socket | None = None
        self._told: _Here | None = None  # where the ranks were told to be
        self._unfit = False  # alive, but not for another test
        self._under_way: Job | None = None
        self.births = 0
        self.cut_short: list[RankOutcome] | None = None  # what was seen of a run that an exception ended

    @property
    def at_rest(self) -> bool:
        """Whether all ranks are alive and wait for a job, be it for one that ends what they are in."""
        if self._under_way is not None or not self._ranks or self._client is None or not self._client.alive:
            return False
        if self._obituaries.poll(0):  # one question for all; a rank that is up has said its number and no more
            for handle in self._ranks:
                handle.listen()
        return all(handle.death is None for handle in self._ranks)

    @property
    def warm(self) -> bool:
        """Whether ranks of an earlier run wait for the next, all alive."""
        return not self._unfit and self.at_rest

    def begin(self, job: Job) -> None:
        """Send `job` to every rank, fresh ones if there are none fit for it, and do not wait for it."""
        packed = _pack(job)
        try:
            if not (self.warm or (self.at_rest and not job.begins)):
                self.discard()
                self._start()
            assert self._transcripts is not None
            self._under_way = job
            if self._inquest is not None:
                self._inquest.begin()
            self._transcripts.begin(anew=job.begins)
            if self._breaks is not None:
                self._breaks.begin(anew=job.begins)
            self._send(packed)
        except BaseException as error:
            self._interrupted_by(error)
            raise

    def end(self, *, deadline: float, stream: bool) -> list[RankOutcome]:
        """Wait for the job that has begun; returns one outcome per rank, in rank order."""
        job, transcripts = self._under_way, self._transcripts
        assert job is not None
        assert transcripts is not None
        supervision = self._supervision(job, transcripts, stream=stream)
        self.cut_short = None
        try:
            endings = supervision.watch(deadline)
        except BaseException as error:
            for told in supervision.failures():  # what ranks have said is gone with the run
                error.add_note(told)
            self._interrupted_by(error, lambda: self._completed(job, transcripts, supervision.cut_short()))
            raise
        self._under_way = None
        outcomes = self._completed(job, transcripts, endings)
        self._unfit = self._unfit or not fit_for_another(outcomes, endings.values(), job, self._device, once=self._mpi)
        if self._unfit and (job.ends or not _answered(outcomes)):
            self.discard()
        return outcomes

    def _completed(self, job: Job, transcripts: Transcripts, endings: dict[int, Ending]) -> list[RankOutcome]:
        faults = len(job.plan.faults) if job.plan is not None else 0
        completed = transcripts.complete([endings[rank].outcome for rank in range(self._n)], faults)
        # Who returned has nothing to be explained.
        returned = all(outcome.status is Status.RETURNED for outcome in completed)
        return completed if returned else self._explained(as_planned(job.plan, completed))

    def _explained(self, ranks: Sequence[RankOutcome]) -> list[RankOutcome]:
        assert self._inquest is not None
        orphans = {handle.rank for handle in self._ranks if handle.orphaned}
        pids = {handle.rank: handle.pid for handle in self._ranks if handle.pid is not None}
        return self._inquest.explain(ranks, orphans, pids)

    def _supervision(self, job: Job, transcripts: Transcripts, *, stream: bool) -> Supervision:
        assert self._client is not None
        assert self._directory is not None
        # pytest's capture may have replaced stdout since; it is looked up anew for each run.
        streamers: list[Pumped] = list(transcripts.streamers(sys.stdout if stream else None))
        if self._look is not None:
            streamers.append(Looks(transcripts.ledgers, self._n, self._look))
        return Supervision(
            self._client, self._ranks, self._directory, transcripts.ledgers, job.plan, streamers, self._breaks
        )

    def _interrupted_by(self, error: BaseException, cut_short: Callable[[], list[RankOutcome]] | None = None) -> None:
        """Ctrl-C, a test's own alarm: the ranks are in the middle of something."""
        try:
            self._tell_where(error)
            if cut_short is not None:
                self.cut_short = cut_short()
        finally:
            self.discard()

    def _tell_where(self, error: BaseException) -> None:
        """Have `error` say where the ranks were when it ended their run."""
        living = [handle for handle in self._ranks if handle.up and handle.listen() is None]
        if self._client is not None and self._directory is not None and living:
            error.add_note(where_ranks_are(stacks_of(self._client, living, self._directory)))

    def discard(self) -> None:
        """Kill the ranks and remove all they left; the next run starts fresh ones."""
        if self._client is not None and self._ranks:
            self._client.kill(self._ranks)
            self._wait_gone()
            if any(handle.orphaned for handle in self._ranks):
                self._client.bury()
        while self._ranks:  # another Ctrl-C may come in between: what is closed is not to be asked again
            self._ranks.pop().close()
        if self._transcripts is not None:
            self._transcripts.close()
        if self._breaks is not None:
            self._breaks.close()
        if self._inquest is not None:
            self._inquest.close()
        if self._directory is not None:
            remove_segments(self._directory)
            shutil.rmtree(self._directory.parent, ignore_errors=True)
        if self._port is not None:
            self._port.close()
        self._transcripts, self._directory, self._breaks = None, None, None
        self._inquest = None
        self._obituaries = select.poll()
        self._port, self._unfit, self._told, self._under_way = None, False, None, None

    def _start(self) -> None:
        require_means(self._n)
        self._client = TemplateClient.shared()
        preload = (*imported_here(), *self._preload)
        if preload or self._prepare is not None:
            self._client.preload(preload, self._prepare)
        # Apart from what bodies put beside it: nothing below is a step of theirs.
        world = self._client.directory / f"world-{secrets.token_hex(6)}"
        self._directory = world / "ranks"
        for directory in (world, self._directory):
            directory.mkdir(mode=0o700)
        self.births += 1
        self._transcripts = Transcripts(self._directory, self._n, self._tell_log)
        self._inquest = Inquest(self._client, self._directory)
        self._breaks = Breaks(self._directory, self._n) if self._contracts else None
        self._port = _hold_port()
        port, run = self._port.getsockname()[1], world.name
        for rank in range(self._n):
            spec = RankSpec(
                rank,
                self._n,
                self._backend,
                self._device,
                str(self._directory),
                GROUP_TIMEOUT_S,
                port,
                run,
                self._init,
                self._contracts,
                self._mpi,
                ranks_per_host(self._n, self._backend, self._device),
            )
            handle = self._client.fork(spec)
            self._ranks.append(handle)
            self._obituaries.register(handle.obituary, select.POLLIN)

    def _send(self, packed: bytes) -> None:
        # Told only when it has changed: ranks stay where they are.
        here = _here()
        place = None if here == self._told else Place(here[0], here[1], for_ranks(here[2]))
        frame = pickle.dumps((place, packed), pickle.HIGHEST_PROTOCOL)
        self._told = here
        until = time.monotonic() + SEND_BOUND_S
        for handle in self._ranks:
            # If it died meanwhile, its obituary says how; if it takes nothing, it is stuck, which will be seen.
            with contextlib.suppress(ConnectionError, TimeoutError):
                send_frame(handle.channel, frame, bound=max(until - time.monotonic(), 0.001))

    def _wait_gone(self) -> None:
        bound = time.monotonic() + DEATH_BOUND_S
        poller = select.poll()
        living = {handle.obituary: handle for handle in self._ranks if handle.listen() is None}
        for fd in living:
            poller.register(fd, select.POLLIN)
        while living and (left := bound - time.monotonic()) > 0:
            for fd, _ in poller.poll(1000 * left):
                if living[fd].listen() is not None:
                    poller.unregister(fd)
                    del living[fd]


def _answered(outcomes: Sequence[RankOutcome]) -> bool:
    return all(outcome.status in (Status.RETURNED, Status.RAISED) for outcome in outcomes)


def _here() -> _Here:
    return tuple(sys.path), os.getcwd(), read_environment()


def _hold_port() -> socket.socket:
    """A port that is free, and stays so for the ranks: bound, so that nobody is given it, and not listened on."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def _pack(job: Job) -> bytes:
    try:
        return dump(job, by_reference=job.by_reference)
    except Exception as error:
        raise UsageError(
            f"{job.body!r} and its arguments cannot be sent to the ranks ({error}); make what cannot be pickled there"
        ) from error
