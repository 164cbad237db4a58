"""What a controller tells the processes of its ranks, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

from rankdrill.diagnosis import LeftGroups, Unwaited
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.step import Site
from rankdrill.strictness import Contracts
from rankdrill.worlds.hosts import Seat, seat
from rankdrill.worlds.plain import Plain

__all__ = ["NO_ACCOUNT", "Account", "Raised", "RankSpec", "Report", "Returned", "Up"]


@dataclass(frozen=True, slots=True)
class RankSpec:
    """Everything a fresh rank is told; travels as JSON through the template."""

    rank: int
    world_size: int
    backend: str
    device: str
    directory: str
    group_timeout: float
    port: int  # free on the loopback interface, and kept so: MASTER_PORT
    run: str  # the name of the run: TORCHELASTIC_RUN_ID
    init: bool = True  # whether bodies find a default process group
    contracts: Contracts = True  # whether it compares its collectives and messages with the other ranks'
    mpi: bool = False  # whether it is a rank of MPI.COMM_WORLD, too
    ranks_per_host: int = 0  # as they are told; 0: all are on one
    pmi: int = -1  # then the descriptor by which MPI finds the other ranks; the template's to fill in

    @property
    def seat(self) -> Seat:
        """Where the rank takes itself to be."""
        return seat(self.rank, self.world_size, self.ranks_per_host or self.world_size)


@dataclass(frozen=True, slots=True)
class Up:
    """The rank is initialised and waits for jobs."""

    pid: int


@dataclass(frozen=True, slots=True)
class Returned(Plain):
    """The body returned; `value` is pickled so that a value that cannot be loaded spoils nothing else."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Raised(Plain):
    """The body raised, at `site`. `error` is the pickled exception, empty if it cannot be pickled and loaded again."""

    error: bytes
    traceback: str
    type_name: str
    message: str
    site: Site | None = None


@dataclass(frozen=True, slots=True)
class Account(Plain):
    """What one rank knows of a job by itself, and what shows only beside the accounts of the others.

    `collectives` counts what the rank issued on the default group so far: ranks that differ are out of step.
    `groups` counts those it has made from that one, as a member or not; both are -1 where it cannot say.
    `messages` is what the rank's tally of them came to; None in the middle of a body, where some may be under way.
    `unwaited` are asynchronous calls that nobody waited for and, as far as this job can tell, nobody will;
    `left_groups` such that it made again and again and destroyed none of. `updates` counts how often a key of a store
    was set that the rank had got before, or a file written that it had read. `taken` says where several have answered
    to a receive from anybody. `handed_over`: something was handed to another thread of the rank, which may have issued
    calls beside it. `on_device`: it has used a group whose calls go on, on a device, after they have returned.
    `at_work`: another thread of it still runs, no daemon, which an interpreter would wait for at its end.
    """

    collectives: int = -1
    groups: int = -1
    unwaited: tuple[Unwaited, ...] = ()
    left_groups: tuple[LeftGroups, ...] = ()
    messages: int | None = None
    updates: int = 0
    taken: tuple[Taken, ...] = ()
    handed_over: bool = False
    on_device: bool = False
    at_work: bool = False

    @property
    def quiet(self) -> bool:
        """Whether there is nothing in it that might be wrong, if the other ranks say the same."""
        told = self.unwaited or self.left_groups or self.messages or self.updates or self.taken
        return not told and not self.handed_over and not self.on_device and self.collectives >= 0 and self.groups >= 0


NO_ACCOUNT = Account()
"""Of a rank that could give none."""


@dataclass(frozen=True, slots=True)
class Report(Plain):
    """How one job ended on one rank. `left` says what a fresh rank would not have; `notes` are for the user."""

    result: Returned | Raised
    at_ns: int
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    account: Account = NO_ACCOUNT
