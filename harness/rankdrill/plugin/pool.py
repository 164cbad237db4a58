"""The pool: one warm world per size, backend and device, for the whole session."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rankdrill.errors import WorldError
from rankdrill.plugin.commands import Collect, Command, Example, Finish, GoOn, NoMoreExamples, Open, SessionSetup
from rankdrill.plugin.foreseen import foreseen_imports
from rankdrill.plugin.marker import RanksMark
from rankdrill.plugin.measured import take_in
from rankdrill.plugin.on_rank import entry
from rankdrill.plugin.session_setup import laying
from rankdrill.strictness import Contracts, contracts_of_both
from rankdrill.worlds import Begun, Outcome, World
from rankdrill.worlds.job import Job

if TYPE_CHECKING:
    from rankdrill.faults import Plan
    from rankdrill.worlds.processes.output import Tell

__all__ = ["WorldKey", "WorldPool"]

MAX_WARM = 4  # worlds kept; the least recently used is thrown away first
FINISH_S = 30.0
_ON_RANKS = "rankdrill.plugin.on_rank.session"
COLLECT_S = 600.0  # for ranks to import a test file; a loaded machine is no fault of the test's


@dataclass(frozen=True, slots=True)
class WorldKey:
    """What tests must have in common to share a world."""

    n: int
    engine: str
    backend: str
    device: str
    init: bool
    contracts: Contracts = True
    mpi: bool = False

    @classmethod
    def of(cls, mark: RanksMark, n: int) -> WorldKey:
        return cls(n, mark.engine, mark.backend, mark.device, mark.init, mark.contracts, mark.mpi)


@dataclass
class Kept:
    """One world, and the test files that its present ranks have collected."""

    world: World
    births: int = 0
    tests: int = 0
    collected: set[str] = field(default_factory=set)


@dataclass
class WorldPool:
    """Worlds by key, in the order of their last use."""

    wanted: SessionSetup
    stream: bool = False
    tell_log: Tell | None = None
    contracts: Contracts = True  # of all worlds, besides what a test says itself
    preload: tuple[str, ...] = ()  # modules that the user wants imported where ranks are forked from
    _worlds: dict[WorldKey, Kept] = field(default_factory=dict)

    @cached_property
    def _foreseen(self) -> tuple[str, ...]:
        return foreseen_imports()  # when the first world is made all test files have been collected

    def at_rest(self, key: WorldKey) -> bool:
        """Whether ranks for `key` are up and wait for a command, be it only to end what they are in."""
        return key in self._worlds and self._worlds[key].world.at_rest

    def warm(self, key: WorldKey) -> bool:
        """Whether ranks for `key` are up, and fit for another test."""
        return key in self._worlds and self._worlds[key].world.warm

    def renew(self, key: WorldKey) -> None:
        """Throw the ranks for `key` away, after their fixtures are torn down; the next command gets fresh ones."""
        if key in self._worlds:
            self._end(self._worlds[key].world)

    def tests_before(self, key: WorldKey) -> int:
        """How many tests the ranks for `key` had run before the one that they run or ran last."""
        return max(self._worlds[key].tests - 1, 0) if key in self._worlds else 0

    def collect(self, key: WorldKey, path: str) -> Outcome | None:
        """Have the ranks import a test file, for as long as that takes; None where they have."""
        kept = self._get(key)
        if kept.world.warm and path in kept.collected and kept.births == kept.world.births:
            return None
        outcome = self.command(key, Collect(path), deadline=COLLECT_S)
        if kept.births != kept.world.births:
            kept.births = kept.world.births
            kept.collected.clear()
            kept.tests = 0
        if not outcome.ok:  # a rank may be without a session: the next test is to be told the same
            return outcome
        kept.collected.add(path)
        return None

    def command(self, key: WorldKey, command: Command, *, plan: Plan | None = None, deadline: float) -> Outcome:
        """Have all ranks obey `command`, and wait until they have."""
        return self.end(key, self.begin(key, command, plan=plan), deadline=deadline)

    def begin(self, key: WorldKey, command: Command, *, plan: Plan | None = None) -> Begun:
        """Send `command` to all ranks; the next thing to be asked of this world is to `end` it."""
        begins = not isinstance(command, GoOn | NoMoreExamples)
        # What a session is made from is told once: with the first file that it collects.
        wanted = self.wanted if isinstance(command, Collect) else None
        if isinstance(command, Open):
            self._get(key).tests += 1
        job = Job(
            entry.obey,
            (wanted, command),
            {},
            plan,
            with_context=True,
            begins=begins,
            ends=False,  # what becomes of the ranks is settled when the test is over
            keeps_state=True,
            prepares=isinstance(command, Collect),
            may_raise=not isinstance(command, Collect),
            counts_anew=isinstance(command, Example),
            by_reference=not isinstance(command, Example),
        )
        return self._get(key).world.begin_job(job)

    def end(self, key: WorldKey, begun: Begun, *, deadline: float) -> Outcome:
        """Wait until the ranks have obeyed."""
        return self._get(key).world.end_job(begun, deadline=deadline)

    def settle(self, key: WorldKey) -> None:
        """A test is over: ranks that are not fit for another are thrown away, after all they have up is torn down."""
        if self.at_rest(key) and not self.warm(key):
            self.renew(key)

    def close(self) -> None:
        """End every world, after its ranks have torn down their fixtures."""
        for kept in self._worlds.values():
            self._end(kept.world)
        self._worlds.clear()
        if self.wanted.measured is not None:
            take_in(self.wanted.measured)

    def _get(self, key: WorldKey) -> Kept:
        """The world for `key`; raises `UsageError` if this machine cannot have it."""
        kept = self._worlds.pop(key, None)
        if kept is None:
            world = World(
                key.n,
                engine=key.engine,
                backend=key.backend,
                device=key.device,
                init=key.init,
                stream=self.stream,
                preload=(_ON_RANKS, *self._foreseen, *self.preload),
                prepare=laying(self.wanted.foundation),
                tell_log=self.tell_log,
                contracts=contracts_of_both(self.contracts, key.contracts),
                mpi=key.mpi,
            )
            kept = Kept(world)
        self._worlds[key] = kept
        while len(self._worlds) > MAX_WARM:
            self._end(self._worlds.pop(next(iter(self._worlds))).world)
        return kept

    def _end(self, world: World) -> None:
        try:
            if world.at_rest:
                job = Job(entry.obey, (None, Finish()), with_context=True, keeps_state=True, begins=False)
                world.run_job(job, deadline=FINISH_S)
        except WorldError:
            pass  # the template is gone; so are the ranks
        finally:
            world.discard()
