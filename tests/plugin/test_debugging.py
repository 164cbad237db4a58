"""A debugger's prompt on a rank, at the terminal of the session."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path
from select import select

import pytest

from tests.conftest import Begin
from tests.plugin.conftest import HEADER, Ran

Run = Callable[..., Ran]

WAIT_S = 60.0  # for a prompt to come up, on a loaded machine
BREAKS = """
@pytest.mark.ranks(2, deadline=1)
def test_breaks(rank):
    secret = 40 + rank.index
    breakpoint()
    dist.barrier()
"""
FAILS = """
@pytest.mark.ranks(2)
def test_fails(rank):
    secret = 40 + rank.index
    assert secret == 40
"""


class Session:
    """A session of pytest in a pseudo terminal of its own, and somebody who types there."""

    def __init__(self, begin: Begin, directory: Path, source: str, *options: str) -> None:
        (directory / "test_it.py").write_text(HEADER + source)
        self._terminal, theirs = pty.openpty()
        args = ["-p", "no:cacheprovider", "--color=no", *options]
        self._process = begin(args, directory, (theirs, theirs, theirs))
        os.close(theirs)
        self.screen = ""

    def read_until(self, text: str) -> None:
        """Wait for `text` to be shown, from where the last wait came to."""
        begun = len(self.screen)
        while text not in self.screen[begun:]:
            ready, _, _ = select([self._terminal], [], [], WAIT_S)
            assert ready, f"no {text!r} on the screen:\n{self.screen}"
            self.screen += self._read()

    def type(self, line: str) -> None:
        os.write(self._terminal, f"{line}\n".encode())

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        while new := self._read():
            self.screen += new
        os.close(self._terminal)
        return self._process.wait(WAIT_S)

    def _read(self) -> str:
        try:
            return os.read(self._terminal, 1 << 16).decode()
        except OSError:  # nobody is at the other end any more
            return ""


def test_a_breakpoint_opens_a_prompt_on_the_rank_and_no_deadline_runs(begin: Begin, tmp_path: Path) -> None:
    session = Session(begin, tmp_path, BREAKS, "--pdb-rank=1")
    session.read_until("(Pdb) ")
    assert "rank 1 at a breakpoint: test_it.py::test_breaks" in session.screen
    with pytest.raises(subprocess.TimeoutExpired):
        session._process.wait(2)  # longer than the test's deadline
    session.type("p 'secret', secret")
    session.read_until("('secret', 41)")
    session.type("c")
    assert session.end() == 0, session.screen
    assert "1 passed" in session.screen


def test_a_failure_opens_one_and_quitting_ends_the_session(begin: Begin, tmp_path: Path) -> None:
    session = Session(begin, tmp_path, FAILS + FAILS.replace("fails", "next"), "--pdb", "--pdb-rank=1")
    session.read_until("(Pdb) ")
    assert "rank 1 failed in call: test_it.py::test_fails" in session.screen
    session.type("p 'secret', secret")
    session.read_until("('secret', 41)")
    session.type("q")
    assert session.end() == 2, session.screen
    assert "Quitting debugger" in session.screen
    assert "test_next" not in session.screen


def test_without_a_terminal_a_breakpoint_fails_at_once_and_says_what_to_do(run: Run) -> None:
    ran = run(BREAKS)
    assert "breakpoint() on rank 0, which has no terminal; to give it yours: " in ran.failure("test_breaks")
    assert "python -m pytest 'test_it.py::test_breaks' --pdb-rank=0" in ran.failure("test_breaks")


def test_pdb_alone_opens_no_prompt_and_says_what_would(run: Run) -> None:
    ran = run(FAILS, "--pdb", subprocess=True)
    ran.result.assert_outcomes(failed=1)
    ran.result.stdout.fnmatch_lines(
        ["--pdb opens no prompt for a test on ranks; with --pdb-rank=1 rank 1 gets one"], consecutive=True
    )
    assert "(Pdb)" not in ran.screen


@pytest.mark.parametrize(
    ("options", "told"), [(("--pdb-rank=-1",), "numbered from 0"), (("--pdb-rank=0", "-n1"), "use -n0")]
)
def test_what_cannot_be(run: Run, options: tuple[str, ...], told: str) -> None:
    ran = run(FAILS, *options, subprocess=True)
    ran.result.stderr.fnmatch_lines([f"ERROR: --pdb-rank*{told}"])
