"""The rank's side: a small pytest session that collects the same file and runs the phases it is told to.

It uses pytest's own machinery for all of it (assertion rewriting, fixtures of every scope, hooks of conftest files),
so a test body behaves as in any session. Private pytest names used, checked by `tests/plugin/test_pytest_seam.py`:
``_pytest.config.Config.fromdictargs`` (as pytest-xdist does), ``Session.from_config``, ``session._setupstate`` and
``_pytest.warnings.catch_warnings_for_item``; of Hypothesis: ``BuildContext`` and ``ConjectureData``.
"""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import Config
from _pytest.main import Session
from _pytest.warnings import catch_warnings_for_item
from hypothesis.control import BuildContext
from hypothesis.errors import UnsatisfiedAssumption
from hypothesis.internal.conjecture.data import ConjectureData

from rankdrill.errors import WorldError
from rankdrill.plugin.phase import Ended, PhaseEnd, RankTestError, SessionSetup, TestPlace
from rankdrill.plugin.rank_fixtures import RankFixtures
from rankdrill.worlds.context import RankContext

__all__ = ["call", "example", "finish", "setup", "teardown"]

_KEY = "pytest session"
_CONTEXT_NAMES_TEST = "wrapped_test" in inspect.signature(BuildContext).parameters  # newer ones ask for it
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"


class RankSession:
    """One pytest session inside one rank; lives as long as the rank."""

    def __init__(self, context: RankContext, wanted: SessionSetup) -> None:
        self.context = context
        self.fixtures = RankFixtures(context)
        with context.boundary.closed():
            config = _config(wanted, context)
            config.pluginmanager.register(self.fixtures.plugin(), "rankdrill-rank")
            config._do_configure()
            # xfail is judged by the controller, on all ranks together.
            config.option.runxfail = True
            self.session = Session.from_config(config)
            config.hook.pytest_sessionstart(session=self.session)
        self.config = config
        # torch's own telemetry logs every failed collective at debug level, in a line as long as a screen.
        logging.getLogger("c10d-NullHandler-default").disabled = True
        self._items: dict[str, pytest.Item] = {}
        self._collected: set[str] = set()
        self.current: pytest.Item | None = None

    @classmethod
    def of(cls, context: RankContext, wanted: SessionSetup) -> RankSession:
        """The rank's session, made when first needed."""
        if _KEY not in context.kept:
            context.kept[_KEY] = cls(context, wanted)
        session: RankSession = context.kept[_KEY]
        return session

    def find(self, place: TestPlace) -> pytest.Item:
        """The item of `place`; its file is collected once."""
        if place.path not in self._collected:
            self._collected.add(place.path)
            with self.context.boundary.closed():
                for item in self.session.perform_collect([place.path]):
                    assert isinstance(item, pytest.Item)
                    self._items[item.nodeid] = item
        if place.nodeid not in self._items:
            raise WorldError(
                f"rank {self.context.index} did not collect {place.nodeid}, the controller did: "
                "parameters or collection differ between processes (a random or time-dependent parametrize?)"
            )
        return self._items[place.nodeid]

    def set_up(self, place: TestPlace) -> pytest.Item:
        """Set the item up, unless it is; returns it."""
        item = self.find(place)
        if self.current is not item:
            self.tear_down(item)
            self.fixtures.place = place
            self.current = item  # from now on there is something to tear down, also if this fails half way
            item.ihook.pytest_runtest_setup(item=item)
        return item

    def set_up_quietly(self, place: TestPlace) -> pytest.Item:
        """`set_up`, of which no step is the body's: faults are meant for the body."""
        with self.context.boundary.closed():
            return self.set_up(place)

    def tear_down(self, nextitem: pytest.Item | None) -> None:
        """Tear down what `nextitem` does not need."""
        item, self.current = self.current, None
        if item is not None:
            item.ihook.pytest_runtest_teardown(item=item, nextitem=nextitem)
        else:
            self.session._setupstate.teardown_exact(nextitem)

    def run(self, item: pytest.Item, body: Callable[[], object]) -> PhaseEnd:
        """Run one phase of `item` under the session's warning filters; raises `RankTestError`."""
        __tracebackhide__ = True
        item._report_sections.clear()
        item.user_properties.clear()
        seen: list[warnings.WarningMessage] = []
        self.fixtures.warned = seen
        ended, reason = Ended.PASSED, ""
        try:
            with catch_warnings_for_item(self.config, item.ihook, "runtest", item):
                body()
        except pytest.skip.Exception as skip:
            ended, reason = Ended.SKIPPED, str(skip.msg)
        except pytest.xfail.Exception as xfail:
            ended, reason = Ended.XFAILED, str(xfail.msg)
        except UnsatisfiedAssumption:
            ended = Ended.REJECTED
        except BaseException:
            raise _failure(item) from None
        return PhaseEnd(ended, reason, _sections(item), tuple(item.user_properties), _plain(seen))


def setup(context: RankContext, wanted: SessionSetup, place: TestPlace) -> PhaseEnd:
    """The setup phase, on one rank."""
    session = RankSession.of(context, wanted)
    return session.run(session.find(place), partial(session.set_up, place))


def call(context: RankContext, wanted: SessionSetup, place: TestPlace) -> PhaseEnd:
    """The call phase, on one rank; the setup too, where the controller saw nothing to set up in a phase of its own."""
    session = RankSession.of(context, wanted)
    item = session.find(place)

    def body() -> None:
        __tracebackhide__ = True
        session.set_up_quietly(place)
        item.ihook.pytest_runtest_call(item=item)

    return session.run(item, body)


def example(context: RankContext, wanted: SessionSetup, place: TestPlace, drawn: dict[str, Any]) -> PhaseEnd:
    """One Hypothesis example, drawn by the controller: the test's inner function with this rank's own fixtures."""
    session = RankSession.of(context, wanted)
    item = session.set_up_quietly(place)
    assert isinstance(item, pytest.Function)
    inner = item.obj.hypothesis.inner_test
    given = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    bound = partial(inner, item.instance) if item.instance is not None else inner
    # The engine is elsewhere, but what a body may call inside a test (assume, note, event) wants a context.
    named = {"wrapped_test": item.obj} if _CONTEXT_NAMES_TEST else {}
    with BuildContext(ConjectureData.for_choices(()), is_final=True, **named):
        return session.run(item, partial(bound, **given, **drawn))


def teardown(context: RankContext, wanted: SessionSetup, place: TestPlace, nextplace: TestPlace | None) -> PhaseEnd:
    """The teardown phase, on one rank; scopes that `nextplace` shares stay up."""
    session = RankSession.of(context, wanted)
    following = session.find(nextplace) if nextplace and nextplace.path in session._collected else None
    return session.run(session.find(place), partial(session.tear_down, following))


def finish(context: RankContext) -> None:
    """The controller's session is over: tear down what is still up."""
    if _KEY in context.kept:
        session: RankSession = context.kept[_KEY]
        session.tear_down(None)


def _config(wanted: SessionSetup, context: RankContext) -> Config:
    # The controller names the plugins it has. Loading them all again by entry point would also search every
    # installed distribution's files for modules to rewrite, in each rank.
    before = os.environ.get(_NO_AUTOLOAD)
    os.environ[_NO_AUTOLOAD] = "1"
    try:
        options = {**wanted.options, "basetemp": str(_own_basetemp(context))}
        return Config.fromdictargs(options, list(wanted.args))
    finally:
        if before is None:
            del os.environ[_NO_AUTOLOAD]
        else:
            os.environ[_NO_AUTOLOAD] = before


def _own_basetemp(context: RankContext) -> Path:
    return context.directory.parent / f"rank-{context.index}-tmp"


def _failure(item: pytest.Item) -> RankTestError:
    excinfo = pytest.ExceptionInfo.from_current()
    text = str(item.repr_failure(excinfo))
    try:
        raw = pickle.dumps(excinfo.value)
        pickle.loads(raw)
    except Exception:  # then its text has to do
        raw = b""
    return RankTestError(text, excinfo.exconly(tryshort=True), raw, _sections(item))


def _sections(item: pytest.Item) -> tuple[tuple[str, str, str], ...]:
    return tuple(item._report_sections)


def _plain(seen: list[warnings.WarningMessage]) -> tuple[tuple[str, str, str, int], ...]:
    return tuple((str(w.message), w.category.__name__, w.filename, w.lineno) for w in seen)
