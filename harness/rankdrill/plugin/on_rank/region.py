"""The part of a test whose changes to the process do not outlive it: its body and its own fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from rankdrill.plugin import pytest_seam
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.processes.state import Condition, Generators

__all__ = ["Region"]


class Region:
    """Opens before the first fixture of function scope, or the body, and closes after the last of these is undone.

    So what a fixture of a class, module, package or session sets holds until its own teardown, and what anything else
    leaves is put back, or noticed.
    """

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._condition: Condition | None = None
        self._moves = 0
        self._is_open = False
        self._seeding: set[str] = set()  # fixtures that outlive tests and have seeded

    @property
    def seeded(self) -> bool:
        """Whether a fixture that is still up has seeded: then what tests draw is its affair."""
        return bool(self._seeding)

    def open(self, item: pytest.Item) -> None:
        """Open it, unless it is; it closes when the finalizers of `item` run."""
        if self._is_open:
            return
        # What the last test was put back to is what this one begins with, if nothing has happened in between.
        if self._condition is None or self._moves != self._context.moves:
            with self._context.boundary.closed():
                self._condition, self._moves = Condition(code=True), self._context.moves
        self._is_open = True
        item.addfinalizer(self.close)

    def close(self) -> None:
        """Put back what can be, and note the rest: such a rank is not used for another test."""
        if self._is_open and self._condition is not None:
            self._is_open = False
            with self._context.boundary.closed():
                self._context.left.extend(self._condition.restore())

    def end(self, item: pytest.Item) -> None:
        """The test is over, its item has let go of what fixtures gave it: note what something else still holds."""
        if not self._is_open and self._condition is not None:
            self._context.left.extend(self._condition.held(pytest_seam.kept_by_instance(item)))

    def forget(self) -> None:
        """Something outside of any test has happened: look anew at the next."""
        if not self._is_open:
            self._condition = None

    @contextmanager
    def outlived(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """What happens meanwhile is a fixture's that outlives the test, and stays until it is torn down."""
        generators = Generators()
        with self._context.boundary.closed():
            before = Condition() if self._is_open else None
        yield
        if generators.seeded_since() is not None:
            name = f"{request.node.nodeid}:{request.fixturename}"
            self._seeding.add(name)
            request.addfinalizer(partial(self._seeding.discard, name))
        self.forget()
        if before is not None and self._condition is not None:
            self._condition.allow(before)
