"""Coverage on a rank: from before the test's file is imported, and safe in a file before each answer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest

from rankdrill.plugin.commands import Measured
from rankdrill.worlds.context import RankContext

__all__ = ["Measuring"]

# The controller measures the same, and says what there is to say about it.
_UNTOLD = ["no-data-collected", "module-not-imported", "module-not-measured", "already-imported"]


class Measuring:
    """A pytest plugin of the rank's session. The rank may be killed between any two commands: `save` comes before."""

    def __init__(self, wanted: Measured, context: RankContext) -> None:
        from coverage import Coverage

        self._by_test = wanted.by_test
        self._context = context
        world = context.directory.parent.name
        # Where the sources are named by relative paths, that is from where the controller started.
        with chdir(wanted.started_in):
            self._coverage = Coverage(
                data_file=Path(wanted.directory, f"rank-{context.index}-of-{world}"),
                config_file=wanted.config_file or False,
                source=wanted.source,
                source_pkgs=wanted.source_pkgs,
                branch=wanted.branch,
            )
            self._coverage.set_option("run:disable_warnings", _UNTOLD)
            self._coverage.set_option("run:parallel", False)
            with suppress(Exception):  # not known before coverage 7.10
                self._coverage.set_option("run:patch", [])  # what the controller patched is inherited
            self._coverage.start()
        pause = context.pause

        def saved_pause(value: Any) -> Any:
            self.save()
            return pause(value)

        context.pause = saved_pause

    def save(self) -> None:
        """Write down what has been measured so far, and keep no file open: a test would seem to have left it."""
        with self._context.boundary.closed():
            self._coverage.save()
            self._coverage.get_data().close(force=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._name(item, "setup")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        self._name(item, "run")
        if item.get_closest_marker("no_cover") is None and "no_cover" not in getattr(item, "fixturenames", ()):
            return (yield)
        self._coverage.stop()
        try:
            return (yield)
        finally:
            self._coverage.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._name(item, "teardown")

    def _name(self, item: pytest.Item, what: str) -> None:
        if self._by_test:
            self._coverage.switch_context(f"{item.nodeid}|{what}")  # as pytest-cov names them
