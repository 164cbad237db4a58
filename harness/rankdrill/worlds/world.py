"""The world: N ranks that run a body each, and the outcome of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from rankdrill.errors import UsageError
from rankdrill.ledger import LedgerView
from rankdrill.strictness import Contracts, check_contracts
from rankdrill.worlds.call import NamedCall
from rankdrill.worlds.gpus import count_gpus
from rankdrill.worlds.hosts import works_on_gpus
from rankdrill.worlds.job import Job
from rankdrill.worlds.judge import blame, verdict_on
from rankdrill.worlds.outcome import Outcome
from rankdrill.worlds.processes import ProcessEngine
from rankdrill.worlds.processes.client import TemplateClient
from rankdrill.worlds.processes.mpi import require_mpi
from rankdrill.worlds.rank_outcome import RankOutcome

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["DEADLINE_S", "MAX_RANKS", "Begun", "Engine", "World", "check_world", "start_template"]

DEADLINE_S = 30.0
MAX_RANKS = 1024  # of one world on one machine; more is a typing error
_ENGINES = ("processes",)
_BACKENDS = ("gloo", "nccl", "cpu:gloo,cuda:nccl")
_DEVICES = ("cpu", "cuda")


class Engine(Protocol):
    """Runs bodies on ranks. `processes` is one; a simulator is another."""

    @property
    def warm(self) -> bool: ...

    @property
    def at_rest(self) -> bool: ...

    @property
    def births(self) -> int: ...

    @property
    def cut_short(self) -> list[RankOutcome] | None: ...

    def begin(self, job: Job) -> None: ...

    def end(self, *, deadline: float, stream: bool) -> list[RankOutcome]: ...

    def discard(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Begun:
    """A job under way: its plan, and when it was sent."""

    plan: Plan | None
    at: float


class World:
    """`n` ranks with an initialised default process group.

    Ranks start at the first `run` and are kept for the next while they behave; after a run in which a rank
    failed, died or hung, the next run gets fresh ones. Not for use from several threads at once.

    With `stream`, what ranks print is shown as it comes, each line after its rank. `preload` names modules to
    import once, before ranks are forked, instead of in each; `prepare` is then called there. With `init=False` ranks
    have no process group until the body makes one. `tell_log(rank, line)` is called, as they come, for lines that ranks
    write to their log files (`RankContext.log`); `look`, a few times a second, with the newest records of each rank's
    ledger. Ranks compare what they are about to do in each collective, and
    whoever comes to one that another has entered in a way that cannot fit raises `ContractBroken`; so does whoever
    touches memory before the call that works on it has been waited for. With `contracts=False` nobody looks; with
    `contracts="strict"` each group that the body made and did not destroy is found as well. With `mpi`
    they are the ranks of ``MPI.COMM_WORLD`` too, as mpi4py over MPICH has it, and fresh ones in each run. Raises
    `UsageError` for a world that cannot be. With `device="cuda"` each has a GPU as its current device; where there are
    fewer than ranks, they share them, as ranks of several hosts (`rankdrill.worlds.hosts`), over NCCL too.

        with World(4) as world:
            assert world.run(lambda: torch.distributed.get_rank()).unwrap() == [0, 1, 2, 3]
    """

    def __init__(
        self,
        n: int,
        *,
        engine: str = "processes",
        backend: str = "gloo",
        device: str = "cpu",
        stream: bool = False,
        preload: Sequence[str] = (),
        prepare: NamedCall | None = None,
        init: bool = True,
        tell_log: Callable[[int, str], None] | None = None,
        contracts: Contracts = True,
        look: Callable[[Sequence[LedgerView]], None] | None = None,
        mpi: bool = False,
    ) -> None:
        check_world(n, engine=engine, backend=backend, device=device, mpi=mpi)
        check_contracts(contracts)
        self.n = n
        self.backend = backend
        self.device = device
        self.stream = stream
        self.mpi = mpi
        self.cut_short: Outcome | None = None
        """What was seen of the newest run that an exception ended here: Ctrl-C, or an alarm."""
        self._engine: Engine = ProcessEngine(
            n,
            backend=backend,
            device=device,
            preload=preload,
            prepare=prepare,
            init=init,
            tell_log=tell_log,
            contracts=contracts,
            look=look,
            mpi=mpi,
        )

    def run(
        self, fn: Callable[..., Any], *args: Any, plan: Plan | None = None, deadline: float = DEADLINE_S
    ) -> Outcome:
        """Run `fn(*args)` on every rank and wait, at most `deadline` seconds, for all of them to end.

        `fn` is anything picklable, or that cloudpickle can pickle by value: lambdas and closures too. `plan`
        says which faults strike where. Never raises for what a rank did: `Outcome.unwrap()` does.
        """
        return self.run_job(Job(fn, args, {}, plan), deadline=deadline)

    def run_job(self, job: Job, *, deadline: float = DEADLINE_S) -> Outcome:
        """Run a prepared `Job`; see `run`."""
        if not isinstance(deadline, int | float) or not deadline > 0:
            raise UsageError(f"deadline={deadline!r} is no time to wait; give seconds above 0")
        return self.end_job(self.begin_job(job), deadline=deadline)

    def begin_job(self, job: Job) -> Begun:
        """Send a prepared `Job` to the ranks. `end_job` waits for it; nothing else may be run before."""
        if not callable(job.body):
            raise UsageError(f"{job.body!r} cannot be run; give a function")
        if job.plan is not None:
            job.plan.check(self.n)
            if self.mpi:
                from rankdrill.faults.among_mpi import check_among_mpi

                check_among_mpi(job.plan)
        begun = Begun(job.plan, time.monotonic())
        self._engine.begin(job)
        return begun

    def end_job(self, begun: Begun, *, deadline: float = DEADLINE_S) -> Outcome:
        """Wait for the job that has `begun`, at most `deadline` seconds from now.

        What ends the wait here, Ctrl-C or an alarm, says what was seen until then, and leaves it in `cut_short`.
        """
        self.cut_short = None
        try:
            ranks = self._engine.end(deadline=deadline, stream=self.stream)
        except BaseException as error:
            if self._engine.cut_short is not None:
                self.cut_short = _outcome(begun, self._engine.cut_short)
                error.add_note(self.cut_short.summary())
            raise
        return _outcome(begun, ranks)

    @property
    def warm(self) -> bool:
        """Whether ranks of an earlier run wait for the next."""
        return self._engine.warm

    @property
    def at_rest(self) -> bool:
        """Whether all ranks are alive and wait for a job, be it only for one that ends what they are in."""
        return self._engine.at_rest

    @property
    def births(self) -> int:
        """How often fresh ranks were started: what an earlier count had told its ranks, these do not know."""
        return self._engine.births

    def discard(self) -> None:
        """Throw the ranks away now; the next run gets fresh ones."""
        self._engine.discard()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def _outcome(begun: Begun, of_ranks: Sequence[RankOutcome]) -> Outcome:
    ranks = tuple(of_ranks)
    verdict, (culprits, victims) = verdict_on(ranks), blame(ranks)
    unfired = _unfired(begun.plan, ranks)
    return Outcome(ranks, verdict, culprits, victims, begun.plan, unfired, time.monotonic() - begun.at)


def start_template() -> None:
    """Start importing what ranks need, in the background; the first `run` otherwise waits for it."""
    TemplateClient.shared()


def check_world(
    n: int, *, engine: str = "processes", backend: str = "gloo", device: str = "cpu", mpi: bool = False
) -> None:
    """Raise `UsageError` if there can be no such world on this machine."""
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_RANKS:
        raise UsageError(f"World({n!r}): a world has 1 to {MAX_RANKS} ranks")
    for name, value, known in (
        ("engine", engine, _ENGINES),
        ("backend", backend, _BACKENDS),
        ("device", device, _DEVICES),
    ):
        if value not in known:
            raise UsageError(f"{name}={value!r} is not known; choose from {', '.join(known)}")
    if mpi:
        require_mpi()
    if works_on_gpus(backend, device) and not count_gpus():
        raise UsageError(
            f"ranks with backend={backend!r} and device={device!r} need a GPU, which they may share, and torch finds "
            'none on this machine; use backend="gloo" and device="cpu"'
        )


def _unfired(plan: Plan | None, ranks: tuple[RankOutcome, ...]) -> tuple[str, ...]:
    if plan is None or not plan.faults:
        return ()
    from rankdrill.faults import unfired

    return tuple(unfired(plan, [rank.fired for rank in ranks], [rank.ledger for rank in ranks]))
