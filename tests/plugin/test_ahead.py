"""The next test begins on its ranks while the one before is reported: where nobody could have kept it from running."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

TWO = """
from pathlib import Path

@pytest.mark.ranks(2)
def test_a():
    dist.barrier()

@pytest.mark.ranks(2)
def test_b(rank):
    Path(f"b-ran-on-{rank.index}").touch()
    dist.barrier()
"""
# When test_a has been called and test_b's turn has not come: waits a while, and tells whether test_b has run.
LOOKS = """
import os, time
from pathlib import Path

def pytest_runtest_logreport(report):
    if report.when == "call" and "test_a" in report.nodeid and "RANK" not in os.environ:
        until = time.monotonic() + {seconds}
        while time.monotonic() < until and not Path("b-ran-on-1").exists():
            time.sleep(0.01)
        Path("ahead").write_text(str(Path("b-ran-on-1").exists()))
"""


@pytest.fixture
def went_ahead(run: Run, pytester: pytest.Pytester) -> Callable[..., bool]:
    """Whether the second test of `source` has run before the first was done with."""

    def looked(source: str = TWO, *args: str, seconds: float = 0.5, conftest: str = "", **outcomes: int) -> bool:
        pytester.makeconftest(LOOKS.format(seconds=seconds) + conftest)
        run(source, *args).result.assert_outcomes(**(outcomes or {"passed": 2}))
        return (pytester.path / "ahead").read_text() == "True"

    return looked


def test_the_next_test_runs_while_this_one_is_reported(went_ahead: Callable[..., bool]) -> None:
    assert went_ahead(seconds=30)


@pytest.mark.parametrize(
    "conftest",
    [
        "def pytest_runtest_setup(item): pass",
        "def pytest_runtest_teardown(item): pass",
        "import pytest\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_protocol(item):\n    return (yield)",
    ],
    ids=["setup", "teardown", "protocol"],
)
def test_not_where_a_conftest_file_has_a_say(went_ahead: Callable[..., bool], conftest: str) -> None:
    assert not went_ahead(conftest=conftest)


@pytest.mark.parametrize("option", ["-s", "--log-cli-level=INFO", "--rankdrill-fresh"])
def test_not_with_options_that_show_or_want_each_test_alone(went_ahead: Callable[..., bool], option: str) -> None:
    assert not went_ahead(TWO, option)


@pytest.mark.parametrize(
    ("before", "outcomes"),
    [
        ("@pytest.mark.skipif(False, reason='not today')", {"passed": 2}),
        ("@pytest.mark.xfail(run=False)", {"passed": 1, "xfailed": 1}),
        ("@pytest.fixture\ndef own(): yield\n", {"passed": 2}),
    ],
    ids=["skipif", "xfail", "a fixture"],
)
def test_not_a_test_whose_setup_is_to_be_asked(
    went_ahead: Callable[..., bool], before: str, outcomes: dict[str, int]
) -> None:
    source = TWO.replace("@pytest.mark.ranks(2)\ndef test_b", f"{before}\n@pytest.mark.ranks(2)\ndef test_b")
    if "fixture" in before:
        source = source.replace("test_b(rank)", "test_b(rank, own)")
    assert not went_ahead(source, **outcomes)


def test_a_plain_test_in_between_has_its_turn(went_ahead: Callable[..., bool]) -> None:
    between = "def test_between():\n    assert not Path('b-ran-on-1').exists()\n\n"
    source = TWO.replace("@pytest.mark.ranks(2)\ndef test_b", f"{between}@pytest.mark.ranks(2)\ndef test_b")
    assert not went_ahead(source, passed=3)


def test_nothing_runs_after_a_failure_that_ends_the_session(run: Run, pytester: pytest.Pytester) -> None:
    ran = run(TWO.replace("dist.barrier()", "assert False", 1), "-x")
    ran.result.assert_outcomes(failed=1)
    assert not list(pytester.path.glob("b-ran-on-*"))


def test_ranks_that_are_not_fit_for_another_get_none(run: Run) -> None:
    left = "import threading; threading.Thread(target=time.sleep, args=(60,), daemon=True, name='t').start()"
    ran = run(TWO.replace("dist.barrier()", left, 1), "-v")
    ran.result.assert_outcomes(passed=2)
    assert "'t': the next test gets fresh ranks" in ran.screen


def test_one_that_dies_ahead_fails_alone_and_the_next_gets_fresh_ranks(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
def test_a():
    dist.barrier()

@pytest.mark.ranks(2)
def test_dies(rank):
    if rank.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()

@pytest.mark.ranks(2, deadline=3)
def test_hangs(rank):
    if rank.index == 1:
        time.sleep(60)
    dist.barrier()

@pytest.mark.ranks(2)
def test_last():
    dist.barrier()
""")
    ran.result.assert_outcomes(passed=2, failed=2)
    assert ran.failure("test_dies").startswith("rank 1 killed by SIGKILL")
    assert ran.failure("test_hangs").startswith("rank 1 ")
    assert ran.outcome("test_a") == ran.outcome("test_last") == "passed"


def test_a_session_that_ends_early_leaves_no_rank(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
import pytest

def pytest_runtest_logreport(report):
    if report.when == "call":
        pytest.exit("enough")
""")
    ran = run(
        """
@pytest.mark.ranks(2)
def test_a(): ...

@pytest.mark.ranks(2)
def test_b():
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)
"""
    )
    assert ran.result.ret == pytest.ExitCode.INTERRUPTED
    pid = pytester.path / "pid"
    if pid.exists():  # it may not even have come to its body
        until = time.monotonic() + 30
        while os.path.exists(f"/proc/{pid.read_text()}") and time.monotonic() < until:
            time.sleep(0.05)
        assert not os.path.exists(f"/proc/{pid.read_text()}")


def test_each_has_its_own_time_and_what_it_printed(run: Run) -> None:
    ran = run(
        """
@pytest.mark.ranks(2)
def test_a(rank):
    print("a on", rank.index)
    time.sleep(0.3)

@pytest.mark.ranks(2)
def test_b(rank):
    print("b on", rank.index)
    assert False
""",
        "-rA",
        "--durations=0",
        "--durations-min=0.1",
    )
    ran.result.assert_outcomes(passed=1, failed=1)
    assert ran.screen.count("a on 0") == 1
    assert "a on" not in ran.failure("test_b")
    (slow,) = [line for line in ran.screen.splitlines() if line.endswith("test_it.py::test_a") and "s call" in line]
    assert 0.3 <= float(slow.split("s")[0]) < 10
    assert not any("s call" in line and line.endswith("test_b") for line in ran.screen.splitlines())
