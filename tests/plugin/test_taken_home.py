"""Somebody else was first where this user's ranks keep their files: plain tests do not notice, ranks find a place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Session
from tests.worlds.taken import TAKEN, some, take

TESTS = """
import pytest

def test_plain(): ...

@pytest.mark.ranks(2)
def test_on_ranks(rank): rank.barrier()
"""


def elsewhere(temporary: Path) -> dict[str, Any]:
    """What a session is given whose temporary files are to be there."""
    return {"fresh": "it finds out where they go", "environ": {**os.environ, "TMPDIR": str(temporary)}}


@some("open", "foreign", "file", nightly=("open", "file"))
def test_a_session_goes_on_and_tells_once(pytester: pytest.Pytester, session: Session, how: str) -> None:
    temporary = pytester.mkdir("tmp")
    home = temporary / f"rankdrill-{os.getuid()}"
    take(home, how)
    pytester.makepyfile(test_one=TESTS, test_two=TESTS)
    ran = session("-p", "no:asyncio", "-W", "error", **elsewhere(temporary))
    ran.assert_outcomes(passed=4, warnings=1)
    ran.stdout.re_match_lines([f".*UserWarning: {home} {TAKEN[how]}: ranks keep their files in {home}-instead-.*"])


def test_without_any_place_only_tests_on_ranks_fail(pytester: pytest.Pytester, session: Session) -> None:
    """As on a disk that is full: whoever keeps `tempfile` from making directories keeps ranks from being there."""
    pytester.makeconftest("""
import tempfile

def full(*args, **kwargs):
    raise OSError(28, "No space left on device")

tempfile.mkdtemp = full
""")
    temporary = pytester.mkdir("tmp")
    take(temporary / f"rankdrill-{os.getuid()}", "open")
    pytester.makepyfile(TESTS)
    ran = session("-p", "no:asyncio", **elsewhere(temporary))
    ran.assert_outcomes(passed=1, errors=1)
    assert "no other can be made beside it: No space left on device; set TMPDIR" in ran.stdout.str()
