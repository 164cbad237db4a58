"""Hypothesis on ranks: the engine runs once, here; each example it draws goes to all ranks."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, event, note, reject, settings
from hypothesis.control import current_build_context
from hypothesis.errors import DeadlineExceeded, Flaky

from rankdrill.drawing import drawing_for
from rankdrill.errors import UsageError
from rankdrill.faults import Plan
from rankdrill.plugin import pytest_seam
from rankdrill.plugin.commands import Example, GoOn, NoMoreExamples
from rankdrill.plugin.drawn import JointDraw
from rankdrill.plugin.engine import count_only, engine_for_ranks, refuse_what_draws, refuse_what_stays, tell_engine
from rankdrill.plugin.item import RankedItem
from rankdrill.plugin.merge import RUN_AGAIN, ends_of, merge, phase_of
from rankdrill.plugin.pytest_seam import TerminalRepr
from rankdrill.plugin.shown import MergedFailure
from rankdrill.worlds import Outcome
from rankdrill.worlds.places import traceback_to
from rankdrill.worlds.planned import all_fired
from rankdrill.worlds.told import Block

__all__ = ["GivenItem"]


_UNTOLD = timedelta(milliseconds=200)  # Hypothesis's default; who writes just this is taken to have said nothing


class GivenItem(RankedItem):
    """A `@given` test on ranks: drawn and shrunk in this process, executed on the ranks.

    Where the world is drawn too, each size has ranks of its own, in which the test is set up when the size is first
    drawn, and torn down when the test is over.
    """

    plain = False  # its setup is a phase of its own, which starts the ranks outside the time that Hypothesis measures
    _found: list[tuple[BaseException, MergedFailure]]  # what each failing example raised, and how it is shown
    _joint: JointDraw
    _spoils: bool  # whether an example that failed left its ranks unfit for another
    _waiting: list[int]  # sizes of the worlds whose ranks wait in the body for examples
    _kept: tuple[int, int]  # how many of the report's sections and properties are not of an example

    def setup(self) -> None:
        """The setup phase, on all ranks."""
        self._found, self._waiting, self._spoils = [], [], False
        super().setup()

    def runtest(self) -> None:
        """The call phase, once for each example.

        Raises `UsageError` for `st.data()`, which draws inside the body: each rank would draw for itself.
        """
        test = self.obj
        function = getattr(test, "__func__", test)
        handle = function.hypothesis
        inner = handle.inner_test
        fixtures = dict.fromkeys(pytest_seam.fixture_names(self), _OnEachRank())
        self._joint = JointDraw(self.mark, self.size, handle._given_kwargs)
        self._kept = len(self._report_sections), len(self.user_properties)
        _settle(function, several=len(self.mark.sizes) > 1)

        # An ordinary function, also for an async one: whether that can be run is for the ranks to say.
        @functools.wraps(inner)
        def send(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            drawn = {name: value for name, value in kwargs.items() if name not in fixtures and not self._is_self(value)}
            refuse_what_draws(drawn)
            return self._run_example(drawn)

        handle.inner_test = send
        try:
            self._wait_for_examples()
            with drawing_for(self._joint.world), engine_for_ranks(lambda: self._spoils):
                test(**fixtures)
        finally:
            handle.inner_test = inner
            failure = self.merged
            ended = self._let_bodies_end()
        if failure is None:
            for outcome in ended:
                del self.user_properties[self._kept[1] :]
                self.take("call", outcome)

    def end(self) -> None:
        """The teardown phase, in every world that the test was set up in."""
        errors = []
        for _ in self._each_world():
            try:
                super().end()
            except BaseException as error:  # pytest.fail's, say: the other worlds are torn down all the same
                errors.append(error)
        if len(errors) > 1:
            raise BaseExceptionGroup("the test could not be torn down in several worlds", errors)
        if errors:
            raise errors[0]

    # ------------------------------------------------------------------------------------ examples

    def _run_example(self, drawn: dict[str, Any]) -> Any:
        """One example on all ranks; raises the culprit's error if it fails.

        Faults that the marker draws strike when it has come through without them: so they are known to find a step.
        """
        __tracebackhide__ = True
        self.size = self._joint.world(drawn).world_size
        given = [value for value in drawn.values() if isinstance(value, Plan)]
        returned = self._run_under(_together(given), drawn)
        assert self.outcome is not None
        self._joint.took(self.outcome)
        plan = self._joint.plan()
        return self._run_under(_together([*given, plan]), drawn) if plan.faults else returned

    def _run_under(self, plan: Plan, drawn: dict[str, Any]) -> Any:
        """The example under a drawn `plan`; rejected if that found no step to strike, for then it proves nothing."""
        __tracebackhide__ = True
        fixed = self.mark.plan() or Plan()
        both = _together([fixed, plan])
        both.check(self.size)
        begun = time.perf_counter()
        outcome = self._on_ranks(drawn, both if both.faults else None)
        count_only(_slowest(outcome), since=begun)
        missed = bool(outcome.unfired and plan.faults) and all_fired(outcome.ranks, len(fixed.faults))
        self._forget_examples()
        try:
            self.take("call", replace(outcome, unfired=()) if missed else outcome)
        except BaseException as error:
            self._spoils |= not self.shared.pool.warm(self.key)
            if self.mark.draws and self.merged is not None:
                note(self._joint.as_written(both))
            if self.merged is not None:
                self._found.append((error, self.merged))
            origin = phase_of(outcome, "call").origin
            error.__traceback__ = traceback_to(origin) if origin is not None else None
            raise
        ends = [end for rank in outcome.ranks if (of_rank := ends_of(rank)) for end in of_rank.phases]
        tell_engine(ends)
        if missed:
            event("a drawn fault found no step to strike")
            reject()
        return next((_Returned(end.returned) for end in ends if end.returned), None)

    def _on_ranks(self, drawn: dict[str, Any], plan: Plan | None) -> Outcome:
        __tracebackhide__ = True
        if self.size not in self._waiting or not self.shared.pool.warm(self.key):
            self._open_world()
        try:
            return self.command(Example(drawn, current_build_context().is_final), plan=plan)
        except UsageError:
            refuse_what_stays(drawn)
            raise

    def _open_world(self) -> None:
        """Set the test up in a world of the present size: a new one, or one whose last example spoiled its ranks."""
        pool = self.shared.pool
        if not pool.warm(self.key) or self.mark.fresh or self.shared.fresh:
            pool.renew(self.key)
        uncollected = pool.collect(self.key, self.place.path)
        if uncollected is not None:
            self._conclude(merge(uncollected, self._where, self.run_again))
        self.take("setup", self.command(self.opened("setup")))
        self._wait_for_examples()

    def _wait_for_examples(self) -> None:
        self.take("call", self.command(GoOn(("call",), examples=True)))
        if self.size not in self._waiting:
            self._waiting.append(self.size)

    def _let_bodies_end(self) -> list[Outcome]:
        return [self.command(NoMoreExamples()) for _ in self._each_world() if self.shared.pool.at_rest(self.key)]

    def _each_world(self) -> Iterator[int]:
        """The sizes that the test was set up in, each while it is the present one; the last is the first again."""
        first, *others = self._waiting or [self.size]
        for self.size in (*others, first):
            yield self.size

    def _forget_examples(self) -> None:
        """What is shown and recorded is of the last example alone."""
        sections, properties = self._kept
        del self._report_sections[sections:], self.user_properties[properties:]

    def _is_self(self, value: Any) -> bool:
        return value is not None and value is self.instance

    def _repr_failure_py(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> TerminalRepr:
        """The example that Hypothesis settled on; or its own word on slow, unreliable or several ones, and those."""
        raised = excinfo.value
        found = self._shown(raised)  # first: a body may itself raise a group
        if found:
            self.merged = found[-1]
        else:
            errors = raised.exceptions if isinstance(raised, BaseExceptionGroup) else ()
            blocks = [_with_notes(failure, error) for error in errors for failure in self._shown(error)]
            if blocks or isinstance(raised, Flaky | DeadlineExceeded):
                self.merged = _word_of_hypothesis(raised, blocks, self._where, self.run_again)
        return super()._repr_failure_py(excinfo, style)

    def _shown(self, raised: BaseException) -> list[MergedFailure]:
        return [failure for error, failure in self._found if error is raised]


def _with_notes(failure: MergedFailure, error: BaseException) -> Block:
    """One of several failures, with the example that Hypothesis found for it."""
    text = [failure.blocks[0].text] if failure.blocks else []
    return Block(failure.headline, "\n\n".join([*text, *getattr(error, "__notes__", ())]))


def _word_of_hypothesis(
    raised: BaseException, blocks: list[Block], where: tuple[str, int], run_again: str
) -> MergedFailure:
    message = " ".join(str(raised.args[0]).split())
    word = MergedFailure(f"{type(raised).__name__}: {message}", blocks, (), where)
    word.sections.append((RUN_AGAIN, run_again))
    return word


def _slowest(outcome: Outcome) -> float:
    """Seconds of the body on the rank that needed longest."""
    ends = filter(None, map(ends_of, outcome.ranks))
    return max((end.seconds for of_rank in ends for end in of_rank.phases), default=0.0)


def _together(plans: Iterable[Plan]) -> Plan:
    return Plan(tuple(fault for plan in plans for fault in plan.faults))


class _OnEachRank:
    """Stands for a fixture's value here: each rank has its own."""

    def __repr__(self) -> str:
        return "<on each rank>"


class _Returned(str):
    """Stands for what a body returned on a rank; Hypothesis refuses a test that returns something."""

    def __repr__(self) -> str:
        return str(self)


def _settle(function: Any, *, several: bool) -> None:
    """Adapt the settings of a test to ranks, which wait for each other, and may each be late on a busy machine.

    The deadline that Hypothesis has for tests that say nothing is left out; one may be told. So is, of a test in
    `several` sizes, what it would say of their instances, as its plugin does where pytest.mark.parametrize makes them.
    """
    chosen = function._hypothesis_internal_use_settings
    suppressed = {*chosen.suppress_health_check, *([HealthCheck.differing_executors] if several else [])}
    deadline = None if chosen.deadline == _UNTOLD else chosen.deadline
    function._hypothesis_internal_use_settings = settings(chosen, suppress_health_check=suppressed, deadline=deadline)
