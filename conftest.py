"""For the whole suite: pytester, which tests run when and where, and no Hypothesis deadlines on a shared machine."""

from __future__ import annotations

import gc
import os
import signal
from typing import Any

import hypothesis
import pytest

pytest_plugins = ["pytester"]

# Examples run on real processes, next to other tests: how long one takes says nothing.
hypothesis.settings.register_profile("rankdrill", deadline=None)
hypothesis.settings.load_profile("rankdrill")

# Begun first, so that no worker is still at one when the others have done.
LONG = (
    "properties/test_drawn_programs.py",
    "gathers/test_two_hosts.py",
    "gathers/test_lost_ranks.py",
    "test_examples.py",
)

# A shell ignores Ctrl-C on behalf of what it starts in the background, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests start hundreds of sessions, most of them short: their templates are forked from one process that has
# imported torch. Those that are about how a template starts and ends do without. Who has set it is not overruled.
KEEP_VARIABLE = "RANKDRILL_KEEP_TEMPLATE"
_KEPT_BY_US = KEEP_VARIABLE not in os.environ
if _KEPT_BY_US:
    os.environ[KEEP_VARIABLE] = "30"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where `-n` alone is given, neighbours stay together: what a module's tests share, two workers would make twice.

    Each worker takes a part of the suite in one piece, and when it has done that, half of what another has left.
    """
    if config.option.dist != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The outermost session, not a worker of pytest-xdist, takes along what it had kept."""
    if _KEPT_BY_US:
        from rankdrill.worlds.home import home
        from rankdrill.worlds.processes.nursery import Nurseries

        Nurseries(home()).dismiss()


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through thousands of tests, and all of torch, again and again.

    It took a quarter of a worker's time. Sessions of pytest that run in this process collect five times each.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "nightly" not in config.option.markexpr:
        late = [item for item in items if item.get_closest_marker("nightly")]
        items[:] = [item for item in items if item not in late]
        config.hook.pytest_deselected(items=late)
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from rankdrill.worlds.gpus import count_gpus

    if count_gpus() == 0:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU that torch can use"))
