"""What ranks log is shown as they log it, by rank, where pytest's own live logs are on."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.conftest import Begin
from tests.plugin.conftest import HEADER, Ran

Run = Callable[..., Ran]

LOGS = """
import logging

log = logging.getLogger("mine")
pids = []

@pytest.mark.ranks(2)
def test_logs(rank, tmp_path):
    pids.append(os.getpid())
    log.warning("100%% of %d\\nand more", rank.index)
    log.info("told at level info")
    log.debug("never told")

@pytest.mark.ranks(2)
def test_goes_on(rank):
    assert pids == [os.getpid()]
"""


def test_by_rank_in_pytests_own_format(run: Run) -> None:
    ran = run(LOGS, "--log-cli-level=INFO")
    ran.result.assert_outcomes(passed=2)
    ran.result.stdout.re_match_lines_random(
        [
            r"-+ live log call -+",
            *(rf"\[rank {rank}\] WARNING +mine:test_it.py:\d+ 100% of {rank}" for rank in range(2)),
            *(rf"\[rank {rank}\] and more" for rank in range(2)),
            r"\[rank 1\] INFO +mine:test_it.py:\d+ told at level info",
        ]
    )
    assert "never told" not in ran.screen


def test_in_the_users_format_and_at_the_level_that_loggers_have(run: Run) -> None:
    ran = run(LOGS, "-o", "log_cli=true", "-o", "log_cli_format=<%(message)s>")
    ran.result.assert_outcomes(passed=2)
    ran.result.stdout.re_match_lines_random([r"\[rank 0\] <100% of 0", r"\[rank 1\] <100% of 1"])
    assert "told at level info" not in ran.screen


def test_not_unless_asked_for(run: Run) -> None:
    ran = run(LOGS)
    ran.result.assert_outcomes(passed=2)
    assert "100%" not in ran.screen.replace("[100%]", "")


def test_at_once(pytester: pytest.Pytester, begin: Begin) -> None:
    pytester.makepyfile(
        HEADER
        + """
import logging

@pytest.mark.ranks(2)
def test_waits_until_it_was_read(rank):
    logging.warning("read me")
    while not os.path.exists("read"):
        time.sleep(0.01)
"""
    )
    heard, said = os.pipe()
    with open(os.devnull, "r+") as null:
        streams = (null.fileno(), said, null.fileno())
        running = begin(["-p", "no:cacheprovider", "--log-cli-level=WARNING"], pytester.path, streams)
    os.close(said)
    with open(heard) as lines:
        for line in lines:
            if "read me" in line:
                (pytester.path / "read").touch()
    assert running.wait() == 0
