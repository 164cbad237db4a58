"""Going ahead: the next test runs on its ranks while this process still reports the one before.

Nothing can be told apart by it but the clock: it takes place only where the test before has come through all its
phases with nothing to tell, and where nothing that this session has loaded could want a say in between.
"""

from __future__ import annotations

import pytest

from rankdrill.worlds import Begun

__all__ = ["Ahead"]

_HOOKS = tuple(f"pytest_runtest_{name}" for name in ("protocol", "setup", "call", "teardown", "makereport"))
"""By these a plugin or a conftest file can keep a test from being run, or do something before it."""

# Those of these do nothing of the kind to a test that no mark singles out.
_KNOWN = frozenset(
    {
        "_hypothesis_pytestplugin",
        "_pytest",
        "anyio",
        "pyfakefs",
        "pytest_asyncio",
        "pytest_benchmark",
        "pytest_check",
        "pytest_cov",
        "pytest_html",
        "pytest_jsonreport",
        "pytest_randomly",
        "pytest_rerunfailures",
        "pytest_timeout",
        "rankdrill",
        "xdist",
    }
)
_MARKS = ("skip", "skipif", "xfail")


class Ahead:
    """At most one test of the session that has begun before its turn; with `possible` False, none ever."""

    def __init__(self, *, possible: bool) -> None:
        self._possible = possible
        self._item: pytest.Item | None = None
        self._begun: Begun | None = None
        self._alone: dict[object, bool] = {}

    def has_begun(self, item: pytest.Item) -> bool:
        """Whether `item` is under way on its ranks."""
        return self._item is item

    def take(self, item: pytest.Item) -> Begun | None:
        """What `item` has begun with, None where its turn finds it not begun."""
        begun = self._begun if self._item is item else None
        self._item = self._begun = None
        return begun

    def may(self, item: pytest.Item) -> bool:
        """Whether nobody has a say before `item`, the next of its world and of the session, begins."""
        return self._possible and not any(map(item.get_closest_marker, _MARKS)) and self._none_has_a_say(item)

    def begun(self, item: pytest.Item, begun: Begun) -> None:
        """`item` is under way."""
        self._item, self._begun = item, begun

    def _none_has_a_say(self, item: pytest.Item) -> bool:
        parent = item.parent  # whose tests all have the same conftest files
        if parent not in self._alone:
            callers = [getattr(item.ihook, hook) for hook in _HOOKS]
            modules = {impl.function.__module__ for caller in callers for impl in caller.get_hookimpls()}
            self._alone[parent] = {module.partition(".")[0] for module in modules} <= _KNOWN
        return self._alone[parent]
