"""One test on a rank: the hooks of pytest's protocol, with the controller between the phases."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from rankdrill.plugin import pytest_seam
from rankdrill.plugin.benchmarked import figures_since
from rankdrill.plugin.commands import Command, GoOn, Open, TestPlace, When
from rankdrill.plugin.ends import COUNTED, Ended, Ends, PhaseEnd, RankTestError
from rankdrill.plugin.on_rank.examples import Follower
from rankdrill.plugin.on_rank.reports import Told, end_of
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.processes.forked import end_if_forked

if TYPE_CHECKING:
    from rankdrill.boundary import Handles

__all__ = ["OpenTest"]


class OpenTest:
    """A test that has begun on this rank. `drive` runs inside pytest's `pytest_runtest_protocol`, once.

    Between phases the rank pauses: so the wrappers of that hook, which catch warnings and explain assertions, span the
    test as they do anywhere, and no rank enters the body before all are set up. `stray` is a command that belongs to
    no open test: the controller has given this one up. `neighbour` finds the item of another test's place; `seed` is
    what this rank's random numbers come from, if the others have not the same.
    """

    def __init__(
        self,
        context: RankContext,
        item: pytest.Item,
        opened: Open,
        neighbour: Callable[[TestPlace | None], pytest.Item | pytest.Collector | None],
        seed: int | None,
    ) -> None:
        self._context = context
        self._item = item
        self._opened = opened
        self._neighbour = neighbour
        self._seed = seed
        self._hooks = item.ihook  # not to be looked up for each of them
        self._told = Told()
        self._more: list[dict[str, Any]] = []
        self._measured = figures_since(item.config, 0)[1]
        self._counted = pytest_seam.failed_subtests(item)
        self._warned: list[warnings.WarningMessage] = []
        self._own: Any = None
        self._up = True  # until it is torn down
        self._issued = range(0)  # by the body: the numbers of the handles that it was given
        self._made = range(0)  # those of the groups that it made
        self._last = Ends()
        self.stray: Command | None = None
        self._pid = os.getpid()

    @property
    def place(self) -> TestPlace:
        return self._opened.place

    @property
    def rank(self) -> int:
        return self._context.index

    def drive(self) -> None:
        """Run the phases that the controller asks for, until the test is torn down."""
        item = self._item
        pytest_seam.renew_request(item)
        self._hooks.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        command: Open | GoOn = self._opened
        try:
            while self._up:
                ends = self._obey(command)
                if not self._up:
                    self._last = ends
                elif self.stray is None:
                    self.stray = self.answer(ends)
                if isinstance(self.stray, GoOn):
                    command, self.stray = self.stray, None
                elif self.stray is not None:
                    command = GoOn(("teardown",))
        finally:
            pytest_seam.end_request(item)
        self._hooks.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def conclude(self) -> Ends:
        """How the last phases ended, with the warnings of the whole test."""
        __tracebackhide__ = True
        told = tuple((str(w.message), w.category.__name__, w.filename, w.lineno) for w in self._warned)
        return Ends(self._last.phases, told).given()

    def heard(self, report: Any) -> None:
        """A report was logged on this rank; those that are not of a phase itself travel with it."""
        if report is self._own or not isinstance(report, pytest.TestReport):
            return
        config = self._item.config
        data = config.hook.pytest_report_to_serializable(config=config, report=report)
        if data is not None:
            counted, self._counted = self._counted, pytest_seam.failed_subtests(self._item)
            self._more.append({**data, COUNTED: self._counted > counted})

    def warned(self, message: warnings.WarningMessage) -> None:
        """A warning was recorded on this rank."""
        self._warned.append(message)

    # ------------------------------------------------------------------------------------- phases

    def answer(self, ends: Ends) -> Command:
        """Tell the controller how it ended, also from within a phase, and wait for the next command."""
        try:
            result: Any = ends.given()
        except RankTestError as error:
            result = error
        command: Command = self._context.pause(result).args[-1]
        return command

    def _obey(self, command: Open | GoOn) -> Ends:
        ends: list[PhaseEnd] = []
        passed = True
        for when in command.phases:
            if when == "call" and not passed:
                continue
            follower: Follower | None = None
            if when == "call" and isinstance(command, GoOn) and command.examples:
                follower = Follower(self.answer, self.rank, self._item, self._opened)
                follower.take_its_place()
            # Faults are meant for the body, also where one job runs all phases.
            quiet = when != "call" and len(command.phases) > 1
            end = self._phase(when, self._context.boundary.closed() if quiet else nullcontext(), command.following)
            if follower is not None:
                self.stray = follower.stray
            passed = end.ended is Ended.PASSED
            ends.append(end)
        return Ends(tuple(ends))

    def _account(self, handles: Handles, when: When, issued: range, *, whole: bool) -> None:
        """Say which handles, of those `issued` in phase `when` and before, had to be waited for by now."""
        if not whole:  # it did not come to where it would have waited
            handles.forget(issued)
        elif when == "call":
            self._issued = issued
        if when == "teardown":  # a fixture may do so until then, and one of a wider scope later than that
            handles.expect(self._issued)

    def _phase(self, when: When, around: AbstractContextManager[None], following: TestPlace | None) -> PhaseEnd:
        item = self._item
        hook = getattr(self._hooks, f"pytest_runtest_{when}")
        more = {"nextitem": self._neighbour(following)} if when == "teardown" else {}
        if when == "teardown":
            self._up = False
        handles = self._context.boundary.handles
        issued = handles.upcoming if handles is not None else 0
        made = self._context.boundary.made
        first = made.upcoming
        with around:
            call = pytest.CallInfo.from_call(functools.partial(hook, item=item, **more), when=when)
            if not self._context.boundary.orders.in_copy:
                end_if_forked(self._pid, call.excinfo.value if call.excinfo is not None else None)
            if when == "call":
                self._context.boundary.orders.over(error=call.excinfo.value if call.excinfo is not None else None)
            report = self._hooks.pytest_runtest_makereport(item=item, call=call)
            self._own = report
            self._hooks.pytest_runtest_logreport(report=report)
        if handles is not None:
            self._account(handles, when, range(issued, handles.upcoming), whole=call.excinfo is None)
        if when == "call":
            self._made = range(first, made.upcoming)
        elif when == "teardown":  # a fixture may destroy them until then; what one has made may outlive the test
            made.expect(self._made)
        logged, self._more = self._more, []
        figures, self._measured = figures_since(item.config, self._measured)
        shared = self._opened.place.tmp_path if self._context.world_size > 1 else ""
        return end_of(report, call, logged, self._told, figures if self.rank == 0 else (), self._seed, shared)
