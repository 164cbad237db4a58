"""What ranks log in a test is caught as in any test, though pytest's handlers are not attached anew in each phase."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import _pytest.logging
import pytest

from rankdrill.plugin.lasting_logs import LastingLogs
from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

MESSAGES = """
import logging

def caught(caplog):
    return [record.getMessage() for record in caplog.records]
"""


@pytest.mark.skipif(
    not hasattr(_pytest.logging.catching_logs, "attached_loggers"), reason="before pytest 9.1 it is not, in any test"
)
def test_a_logger_that_stops_propagating_in_a_fixture_is_caught_in_the_body(run: Run) -> None:
    ran = run(
        MESSAGES
        + """
@pytest.fixture
def apart():
    logger = logging.getLogger("apart")
    logger.propagate = False
    yield logger
    logger.propagate = True

@pytest.mark.ranks(2)
@pytest.mark.parametrize("again", [1, 2])
def test_one(apart, caplog, again):
    apart.warning("from apart")
    assert caught(caplog) == ["from apart"]
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_a_body_that_sets_up_logging_anew_does_not_stop_the_next_test_from_catching(run: Run) -> None:
    ran = run("""
import logging.config

@pytest.mark.ranks(2)
def test_one():
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, "root": {"handlers": []}})

@pytest.mark.ranks(2)
@pytest.mark.parametrize("again", [1, 2])
def test_two(rank, again):
    logging.getLogger("here").warning(f"still heard {rank.index}")
    assert not again
""")
    ran.result.assert_outcomes(passed=1, failed=2)
    assert [ran.screen.count(f"test_it.py:15 still heard {rank}") for rank in range(2)] == [2, 2]


def test_a_test_that_sets_up_logging_anew_does_not_stop_the_next_phase_from_catching(run: Run) -> None:
    ran = run(
        MESSAGES
        + """
import logging.config

@pytest.fixture
def configured():
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, "root": {"handlers": []}})

@pytest.mark.ranks(2)
@pytest.mark.parametrize("again", [1, 2])
def test_one(configured, caplog, again):
    logging.getLogger("here").warning("still heard")
    assert caught(caplog) == ["still heard"]
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_each_phase_has_the_records_of_its_own(run: Run) -> None:
    ran = run(
        MESSAGES
        + """
@pytest.fixture
def loud(caplog):
    logging.warning("setting up")
    yield
    assert [r.getMessage() for r in caplog.get_records("setup")] == ["setting up"]
    assert [r.getMessage() for r in caplog.get_records("call")] == ["in the body"]

@pytest.mark.ranks(2)
@pytest.mark.parametrize("again", [1, 2])
def test_one(loud, caplog, again):
    logging.warning("in the body")
    assert caught(caplog) == ["in the body"]
    assert [r.getMessage() for r in caplog.get_records("setup")] == ["setting up"]
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_a_file_that_is_imported_after_tests_have_run_finds_the_root_logger_without_handlers(
    pytester: pytest.Pytester,
) -> None:
    marked = "import logging, pytest\npytestmark = pytest.mark.ranks(2)\n"
    pytester.makepyfile(test_a=marked + "def test_it(): logging.warning('heard')\n")
    pytester.makepyfile(
        test_b=marked + "HANDLERS = list(logging.getLogger().handlers)\ndef test_it(): assert not HANDLERS, HANDLERS\n"
    )
    options = ("-p", "no:cacheprovider", "-p", "no:asyncio")
    pytester.runpytest_inprocess(*options, "-p", "no:logging").assert_outcomes(passed=2)
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=2)


def test_tests_without_ranks_in_between_have_pytests_own_way(run: Run) -> None:
    ran = run(
        MESSAGES
        + """
import _pytest.logging

@pytest.mark.ranks(2)
def test_before():
    logging.warning("on a rank")

def test_plain(caplog):
    assert isinstance(_pytest.logging.catching_logs, type)
    logging.warning("here")
    assert caught(caplog) == ["here"]
    handlers = logging.getLogger().handlers
    assert len(handlers) == len(set(map(id, handlers)))

@pytest.mark.ranks(2)
def test_after(caplog):
    logging.warning("there")
    assert caught(caplog) == ["there"]
"""
    )
    ran.result.assert_outcomes(passed=3)


everywhere = pytest.mark.skipif(
    not hasattr(_pytest.logging.catching_logs, "attached_loggers"),
    reason="this pytest attaches its handlers to the root logger alone",
)


@contextmanager
def _lasting() -> Iterator[LastingLogs]:
    logs = LastingLogs()
    logs.keep()
    try:
        yield logs
    finally:
        logs.close()


@pytest.fixture
def apart() -> Iterator[logging.Logger]:
    logger = logging.getLogger("rankdrill-test-apart")
    logger.propagate = False
    yield logger
    logger.propagate = True


@everywhere
def test_handlers_stay_between_phases_and_go_when_released(apart: logging.Logger) -> None:
    handler = _pytest.logging.LogCaptureHandler()
    with _lasting() as logs:
        with _pytest.logging.catching_logs(handler):
            assert handler in apart.handlers
        assert handler in apart.handlers
        assert handler in logging.getLogger().handlers
        logs.release()
        assert handler not in apart.handlers
        assert handler not in logging.getLogger().handlers


@everywhere
def test_what_is_logged_between_phases_is_kept_by_none_of_them(apart: logging.Logger) -> None:
    handler = _pytest.logging.LogCaptureHandler()
    with _lasting():
        with _pytest.logging.catching_logs(handler):
            apart.warning("within")
            within = handler.records
        apart.warning("between")
        assert [record.getMessage() for record in within] == ["within"]


def test_the_level_of_a_phase_is_undone_with_it() -> None:
    root, handler = logging.getLogger(), _pytest.logging.LogCaptureHandler()
    before = root.level
    with _lasting():
        with _pytest.logging.catching_logs(handler, level=logging.DEBUG):
            assert root.level == logging.DEBUG
        assert root.level == before


def test_handlers_of_other_kinds_are_pytests_own_affair() -> None:
    other = logging.NullHandler()
    with _lasting():
        with _pytest.logging.catching_logs(other):
            assert other in logging.getLogger().handlers
        assert other not in logging.getLogger().handlers
