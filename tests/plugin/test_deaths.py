"""How a rank died, told in the report of the test it died in; pytest's own fault handler keeps what is its part."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import HEADER, Ran

Run = Callable[..., Ran]

NEXT = """
@pytest.mark.ranks(2)
def test_next(rank):
    rank.barrier()
"""


def line_of(source: str, text: str) -> int:
    """The number of the line with `text` in it, in the file that `run` makes of `source`."""
    lines = (HEADER + source).strip().splitlines()  # as pytester writes it
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_crash_is_told_with_its_line_and_stack_and_nothing_on_stderr(run: Run) -> None:
    source = """
import ctypes

def step():
    ctypes.string_at(0)  # here

@pytest.mark.ranks(2)
def test_it(rank):
    dist.all_reduce(torch.ones(1))
    if rank.index == 1:
        step()
    rank.barrier()
"""
    ran = run(source + NEXT)
    text = ran.failure("test_it")
    assert text.startswith(f"rank 1 killed by SIGSEGV at test_it.py:{line_of(source, '# here')} in step, after ")
    assert (
        f"after collective.all_reduce #0 on 'default' (float32[1] sum), at test_it.py:{line_of(source, 'all_red')}"
        in text
    )
    stack = text.partition("Current thread 0x")[2]
    assert stack.index("in string_at") < stack.index("in step\n") < stack.index("in test_it\n")
    assert "_pytest" not in stack
    assert "Captured stderr" not in ran.screen
    assert ran.outcome("test_next") == "passed"


def test_a_name_that_a_file_took_before_is_seen(run: Run) -> None:
    source = """
from os import _exit

@pytest.mark.ranks(2)
def test_it(rank):
    if rank.index == 1:
        _exit(3)  # here
"""
    text = run(source).failure("test_it")
    where = f"test_it.py:{line_of(source, '# here')} in test_it"
    assert text.startswith(f"rank 1 exited with code 3, by os._exit at {where}, before its first step")


def test_a_death_in_a_fixture_is_told_with_its_line(run: Run) -> None:
    source = """
@pytest.fixture
def broken(rank):
    if rank.index == 1:
        os._exit(3)  # here

@pytest.mark.ranks(2)
def test_it(broken): ...
"""
    ran = run(source)
    assert ran.outcome("test_it") == "error"
    assert f"by os._exit at test_it.py:{line_of(source, '# here')} in broken" in ran.failure("test_it")


def test_sys_exit_is_told_with_its_line(run: Run) -> None:
    source = """
@pytest.mark.ranks(2)
def test_it(rank):
    if rank.index == 1:
        sys.exit(4)  # here
"""
    text = run(source).failure("test_it")
    assert text.startswith(f"rank 1 failed: SystemExit: 4 at test_it.py:{line_of(source, '# here')} in test_it\n")


def test_a_handler_that_the_file_enables_has_its_way(run: Run) -> None:
    ran = run("""
import ctypes, faulthandler
faulthandler.enable()

@pytest.mark.ranks(2)
def test_it(rank):
    if rank.index == 1:
        ctypes.string_at(0)
""")
    assert ran.failure("test_it").startswith("rank 1 killed by SIGSEGV at test_it.py:")
    assert "Fatal Python error: Segmentation fault" in ran.screen


def test_pytests_own_dumps_of_slow_tests_go_where_they_did(run: Run) -> None:
    ran = run(
        """
@pytest.mark.ranks(2)
def test_it(rank):
    time.sleep(2 if rank.index else 0)
    assert not rank.index
""",
        *("-o", "faulthandler_timeout=0.5"),
    )
    assert "Timeout (0:00:00.500000)!" in ran.screen.partition("Captured stderr of rank 1")[2]


@pytest.mark.nightly
def test_the_death_of_the_template_is_an_error_of_the_harness(run: Run) -> None:
    ran = run(
        """
@pytest.mark.ranks(2)
def test_it(rank):
    if rank.index == 0:
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)
"""
        + NEXT
    )
    text = ran.failure("test_it")
    assert text.startswith("the process that ranks are forked from was killed by SIGKILL\n")
    assert "ranks 0, 1 went with the process that ranks are forked from" in text.partition("victims:")[2]
    assert ran.outcome("test_next") == "passed"
