"""Hypothesis on a rank: the engine is in the controller; here the body runs with what it draws, example by example.

Private names of Hypothesis used, checked by `tests/plugin/test_pytest_seam.py`: ``BuildContext``, ``ConjectureData``,
``test.hypothesis.inner_test`` and ``default_executor``.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis.control import BuildContext
from hypothesis.errors import InvalidArgument, UnsatisfiedAssumption
from hypothesis.internal.conjecture.data import ConjectureData

from rankdrill.plugin.commands import Command, Example, NoMoreExamples, Open
from rankdrill.plugin.ends import Ended, Ends, PhaseEnd
from rankdrill.plugin.on_rank.reports import failed
from rankdrill.worlds.processes.state import reseed, seed_of

__all__ = ["Follower"]

_CONTEXT_NAMES_TEST = "wrapped_test" in inspect.signature(BuildContext).parameters  # newer ones ask for it


class Follower:
    """Stands where Hypothesis's wrapper stood, so that hooks and plugins around the body are those of any test.

    `answer` tells the controller how an example ended and waits for its next command. `stray` is one that ended the
    body, though it asks for no example and says not that there are no more.
    """

    def __init__(self, answer: Callable[[Ends], Command], rank: int, item: Any, opened: Open) -> None:
        self._answer = answer
        self._rank = rank
        self._item = item
        self._opened = opened
        self._wrapper = item.obj
        self.stray: Command | None = None

    def take_its_place(self) -> None:
        """Let the item call this instead of the wrapper, until its fixtures are undone."""
        wrapper, follow = self._wrapper, self._follow

        def follower(*args: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            follow(fixtures)

        # Plugins that run async tests find the inner function here, and replace it.
        follower.hypothesis = wrapper.hypothesis  # type: ignore[attr-defined]
        follower.is_hypothesis_test = True  # type: ignore[attr-defined]
        self._item.obj = follower

        def back() -> None:
            self._item.obj = wrapper

        self._item.addfinalizer(back)

    def _follow(self, fixtures: dict[str, Any]) -> None:
        __tracebackhide__ = True
        inner = self._wrapper.hypothesis.inner_test
        instance = getattr(self._item, "instance", None)
        if inspect.iscoroutinefunction(inner) and not hasattr(instance, "execute_example"):
            raise InvalidArgument(
                f"Hypothesis doesn't know how to run async test functions like {inner.__name__}: a plugin for them, "
                "pytest-asyncio say, has to be installed and in use"
            )
        bound = partial(inner, instance) if instance is not None else inner
        end = PhaseEnd("call", Ended.PASSED)
        while True:
            command = self._answer(Ends((end,)))
            if isinstance(command, NoMoreExamples):
                return
            if not isinstance(command, Example):
                self.stray = command
                return
            begun = time.perf_counter()
            end = self._example(partial(bound, **fixtures, **command.drawn), final=command.final)
            end = replace(end, seconds=time.perf_counter() - begun)

    def _example(self, body: partial[Any], *, final: bool) -> PhaseEnd:
        __tracebackhide__ = True  # a failure begins in the body
        index = None if self._opened.same_seed else self._rank
        seed = self._item.config.option.rankdrill_seed
        reseed(seed_of(seed, self._opened.place.nodeid, index))  # so that an example can be repeated
        named = {"wrapped_test": self._wrapper} if _CONTEXT_NAMES_TEST else {}
        # The engine is elsewhere, but what a body may call inside a test (assume, note, event) wants a context.
        try:
            said = ConjectureData.for_choices(())
            with BuildContext(said, is_final=final, **named):
                returned = body()
        except UnsatisfiedAssumption:
            return PhaseEnd("call", Ended.REJECTED)
        except pytest.skip.Exception as skip:
            return PhaseEnd("call", Ended.SKIPPED, str(skip.msg))
        except pytest.xfail.Exception as xfail:
            return PhaseEnd("call", Ended.XFAILED, str(xfail.msg))
        except BaseException:
            return self._failed()
        if inspect.iscoroutine(returned):
            returned.close()
        return PhaseEnd(
            "call",
            Ended.PASSED,
            returned="" if returned is None else repr(returned),
            events=tuple(said.events.items()),
            targets=tuple(said.target_observations.items()),
        )

    def _failed(self) -> PhaseEnd:
        excinfo = pytest.ExceptionInfo.from_current()
        return failed("call", excinfo, str(self._item.repr_failure(excinfo)))
