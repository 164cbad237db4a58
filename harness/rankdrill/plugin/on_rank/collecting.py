"""Files are collected one by one on a rank, each for its first test; what they share is kept between them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from rankdrill.plugin import pytest_seam

__all__ = ["Collecting"]


class Collecting:
    """A plugin of the rank's session. `failed` says, in words, what could not be collected; `items` are all that were,
    also those that a conftest file then deselects: many do by ``WORLD_SIZE``, and the controller has selected already.
    """

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.items: dict[str, pytest.Item] = {}
        self._directories: dict[tuple[pytest.Collector, Path], pytest.Collector] = {}

    def above(self, path: Path) -> pytest.Collector | None:
        """The innermost directory over `path` of which a file has been collected."""
        known = {node.path: node for node in self._directories.values()}
        return next((known[parent] for parent in path.parents if parent in known), None)

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(
        self, path: Path, parent: pytest.Collector
    ) -> Generator[None, pytest.Collector | None, pytest.Collector | None]:
        """Use the node that there is: pytest 9.1 ties a conftest file's fixtures to the first that it makes.

        Fixtures of scope "package" live as long as that node is needed.
        """
        made = yield
        return made if made is None else self._directories.setdefault((parent, path), made)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Keep the conftest files of directories that no file has been collected from yet."""
        with pytest_seam.conftests_kept(session):
            return (yield)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self.items[item.nodeid] = item

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what failed: whoever asks for one of its tests is told."""
        if report.failed:
            self.failed.append(report.longreprtext)
