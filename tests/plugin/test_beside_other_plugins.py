"""Under pytest-xdist and beside pytest-timeout, pytest-rerunfailures and others."""

from __future__ import annotations

import os
from collections.abc import Callable

import psutil
import pytest

from rankdrill.worlds.processes.nursery import KEEP_VARIABLE
from tests.plugin.conftest import WITHOUT_TORCH, Ran

Run = Callable[..., Ran]

BOTH = """
@pytest.mark.ranks(2)
@pytest.mark.parametrize("n", range(6))
def test_ranks(rank, n):
    rank.barrier()

@pytest.mark.ranks(2)
def test_fails(rank):
    assert rank.index == 0

@pytest.mark.parametrize("n", range(6))
def test_plain(n): ...
"""


def test_under_xdist(run: Run) -> None:
    ran = run(BOTH, "-n", "2", subprocess=True, header=WITHOUT_TORCH)
    ran.result.assert_outcomes(passed=12, failed=1)
    assert "rank 1 failed: assert 1 == 0" in ran.screen


WORKER = """
@pytest.fixture(scope="module")
def database(worker_id, testrun_uid):
    return f"db-{{worker_id}}-{{testrun_uid}}"

@pytest.mark.ranks(2)
def test_ranks(rank, database, worker_id):
    assert worker_id {expected}
    told = [None, None]
    import torch.distributed as dist
    dist.all_gather_object(told, database)
    assert told == [database] * 2
"""


@pytest.mark.parametrize(("distributed", "expected"), [((), "== 'master'"), (("-n", "1"), "== 'gw0'")])
def test_fixtures_of_xdist_are_there_on_ranks(run: Run, distributed: tuple[str, ...], expected: str) -> None:
    ran = run(WORKER.format(expected=expected), *distributed, subprocess=bool(distributed), header=WITHOUT_TORCH)
    ran.result.assert_outcomes(passed=1)


def test_the_alarm_of_pytest_timeout_ends_the_world_and_says_where_its_ranks_were_and_the_verdict(run: Run) -> None:
    ran = run(
        """
def busy():
    time.sleep(100)

@pytest.mark.timeout(6)
@pytest.mark.ranks(4)
def test_slow(rank, tmp_path):
    if rank.index == 1:
        busy()
    if rank.index < 3:
        time.sleep(100)

@pytest.mark.ranks(2)
def test_next(rank):
    rank.barrier()
""",
        subprocess=True,
    )
    assert ran.outcome("test_next") == "passed"
    told = [
        r"Timeout .*",
        r"the ranks were",
        r"ranks 0, 2 at \(innermost call first\):",
        r"  File .*test_it.py.* in test_slow",
        r"rank 1 at \(innermost call first\):",
        r"  File .* in busy",
        r"  File .* in test_slow",
        r"rank 3 in no line of the user's",
        r"hang: rank 0 was still running when the run was interrupted, asleep .* at .*test_it.py:.*",
    ]
    ran.result.stdout.re_match_lines(told)
    assert "supervise.py" not in ran.screen


def test_when_pytest_timeout_exits_the_process_no_rank_lives_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP_VARIABLE, raising=False)  # of what is forked from a nursery nobody could tell whose it is
    marker = f"RANKDRILL_TEST_{os.getpid()}"
    ran = run(
        f"""
@pytest.mark.ranks(2)
def test_slow(rank, monkeypatch):
    os.environ[{marker!r}] = "1"
    time.sleep(100)
""",
        "--timeout=2",
        "--timeout-method=thread",
        subprocess=True,
    )
    assert ran.result.ret != 0
    _, alive = psutil.wait_procs(_children_of_templates(), timeout=10)
    assert not alive


def _children_of_templates() -> list[psutil.Process]:
    mine = {child.pid for child in psutil.Process().children(recursive=True)}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or ())
        # Templates of other workers of this very suite have living parents.
        if "worlds.processes.template" in command and process.pid not in mine and process.ppid() == 1:
            found.append(process)
    return found


@pytest.mark.parametrize(
    "options", [("-x",), ("--setup-show",), ("-v", "--durations=3"), ("-p", "no:hypothesispytest")]
)
def test_with_common_options(run: Run, options: tuple[str, ...]) -> None:
    ran = run("@pytest.mark.ranks(2)\ndef test_it(rank): rank.barrier()", *options)
    ran.result.assert_outcomes(passed=1)


REPORTER = """
import os
import pytest
from _pytest.terminal import TerminalReporter

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    with open(f"{__name__}.pids", "a") as configured:
        print(os.getpid(), file=configured)
    reporter = config.pluginmanager.getplugin("terminalreporter")
    config.pluginmanager.unregister(reporter)
    config.pluginmanager.register(Loud(config, reporter), "terminalreporter")

class Loud(TerminalReporter):
    def __init__(self, config, other):
        super().__init__(config)
        self.other = other

    def pytest_runtest_logstart(self, nodeid, location):
        self.write_line(f"{__name__}: here comes {nodeid}")
        if type(self.other) is not TerminalReporter:
            self.other.pytest_runtest_logstart(nodeid, location)
"""
REPORTERS = ("instafail", "pretty", "rich", "sugar")


@pytest.mark.nightly
def test_who_takes_the_place_of_the_reporter_does_so_in_the_controller_alone(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes the place of the one before; on a rank there is none for any of them to take."""
    pytester.makepyfile(**{f"loud_{name}": REPORTER for name in REPORTERS})
    installed = pytester.mkdir("loud-1.0.dist-info")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    listed = "".join(f"{name} = loud_{name}\n" for name in REPORTERS)
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{listed}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), os.environ.get("PYTHONPATH", "")]))
    ran = run("@pytest.mark.ranks(2)\ndef test_it(rank): rank.barrier()", fresh="it loads what is installed")
    assert ran.outcome("test_it") == "passed"
    for name in REPORTERS:
        assert ran.screen.count(f"loud_{name}: here comes test_it.py::test_it") == 1
        assert len((pytester.path / f"loud_{name}.pids").read_text().splitlines()) == 1, "in one process"


REPORTS = """
def pytest_addoption(parser):
    parser.addoption("--alluredir", dest="allure_report_dir")
    parser.addoption("--clean-alluredir", dest="clean_alluredir", action="store_true")
    parser.addoption("--json-report", dest="json_report", action="store_true")
    parser.addoption("--other")

def pytest_configure(config):
    if "RANK" in __import__("os").environ:
        asked = config.option
        print(asked.allure_report_dir, asked.clean_alluredir, asked.json_report, asked.other, file=open("rank", "a"))
"""


def test_what_writes_a_report_does_so_in_the_controller_alone(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(REPORTS)
    options = ("--alluredir=allure", "--clean-alluredir", "--json-report", "--other=1")
    ran = run("@pytest.mark.ranks(2)\ndef test_it(): ...", *options)
    ran.result.assert_outcomes(passed=1)
    assert (pytester.path / "rank").read_text().splitlines() == ["None False False 1"] * 2


FORKS = """
import os
import pytest
from _pytest.runner import runtestprotocol

def pytest_addoption(parser):
    parser.addoption("--forked", action="store_true")

def pytest_configure(config):
    config.addinivalue_line("markers", "forked: in a fork")

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if item.config.getvalue("forked") or item.get_closest_marker("forked"):
        pid = os.fork()
        if pid == 0:
            os._exit(1 if any(report.failed for report in runtestprotocol(item, log=False)) else 0)
        outcome = "passed" if os.waitpid(pid, 0)[1] == 0 else "failed"
        report = pytest.TestReport(item.nodeid, item.location, {}, outcome, "in a fork", "call", [("forked", 1)])
        item.ihook.pytest_runtest_logreport(report=report)
        return True
"""


@pytest.mark.parametrize("options", [(), ("--forked",)], ids=["by mark", "by option"])
def test_what_forks_for_a_test_does_not_for_one_on_ranks(
    run: Run, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makeconftest(FORKS)
    ran = run(
        """
@pytest.mark.ranks(2)
@pytest.mark.forked
def test_ranks(rank, tmp_path):
    rank.barrier()

@pytest.mark.forked
def test_plain():
    os.environ["FORKED"] = "1"

@pytest.mark.ranks(2)
def test_fails(rank):
    assert rank.index == 0 and "FORKED" not in os.environ
""",
        *options,
        subprocess=True,
    )
    outcomes = {name: ran.outcome(name) for name in ran.cases}
    assert outcomes == {"test_ranks": "passed", "test_plain": "passed", "test_fails": "failed"}
    assert "rank 1 failed: assert" in ran.failure("test_fails")


def test_who_asks_for_a_terminal_on_a_rank_has_one_that_nobody_reads(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
def test_it(rank, request):
    request.config.get_terminal_writer().line("unheard")
    assert rank.index == 0
""")
    assert ran.failure("test_it").startswith("rank 1 failed: assert 1 == 0")
    assert "unheard\n" not in ran.screen.replace('"unheard")', "")


def test_where_ranks_can_have_no_session_a_test_has_one_error(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
import os

def pytest_configure(config):
    if os.environ.get("RANK") == "1":
        raise OSError("planted")
""")
    ran = run("""
@pytest.mark.ranks(2)
@pytest.mark.parametrize("n", range(2))
def test_it(n, tmp_path): ...
""")
    assert [ran.outcome(f"test_it[{n}]") for n in range(2)] == ["error", "error"]
    for n in range(2):
        assert "rank 1 raised OSError: planted" in ran.failure(f"test_it[{n}]")


def test_what_a_plugin_warns_of_is_told_by_the_controller_alone(run: Run) -> None:
    plain = run("def test_it(): ...", "-s", subprocess=True, asyncio=True)
    ran = run("@pytest.mark.ranks(2)\ndef test_it(rank): rank.barrier()", "-s", subprocess=True, asyncio=True)
    ran.result.assert_outcomes(passed=1)
    told, alone = (one.screen + str(one.result.stderr) for one in (ran, plain))
    warning = '"asyncio_default_fixture_loop_scope" is unset'
    assert told.count(warning) == alone.count(warning)
    assert "[rank" not in told


ASYNC = """
import asyncio

@pytest.mark.asyncio
@pytest.mark.ranks(2)
async def test_passes(rank):
    await asyncio.sleep(0)
    total = torch.ones(1)
    await asyncio.to_thread(dist.all_reduce, total)
    assert total == 2

@pytest.mark.asyncio
@pytest.mark.ranks(2)
async def test_fails(rank):
    await asyncio.sleep(0)
    assert rank.index == 0

@pytest.mark.asyncio
@pytest.mark.ranks(2)
async def test_hangs(rank):
    await asyncio.sleep(0)
    if rank.index == 0:
        dist.barrier()
"""
SCOPE = "asyncio_default_fixture_loop_scope=function"


def test_coroutines_run_on_ranks_as_pytest_asyncio_runs_them(run: Run) -> None:
    ran = run(ASYNC, "-o", SCOPE, subprocess=True, asyncio=True)
    ran.result.assert_outcomes(passed=1, failed=2)
    assert ran.failure("test_fails").startswith("rank 1 failed: assert 1 == 0")
    told = ran.failure("test_hangs").splitlines()[0]
    assert "rank 0 makes one call more, barrier #0 on 'default', at test_it.py:" in told


@pytest.mark.nightly
def test_coroutines_without_the_mark_run_in_its_mode_auto_and_fail_without_a_plugin(run: Run) -> None:
    source = ASYNC.replace("@pytest.mark.asyncio\n", "")
    ran = run(source, "-o", SCOPE, "--asyncio-mode=auto", subprocess=True, asyncio=True)
    ran.result.assert_outcomes(passed=1, failed=2)
    ran = run(source, subprocess=True)
    ran.result.assert_outcomes(failed=3)
    assert "async def functions are not natively supported" in ran.failure("test_passes")


ATTEMPTS = """
import pytest

@pytest.fixture
def attempt(request):
    return request.node.execution_count

@pytest.mark.ranks(2)
def test_it(rank, attempt):
    assert attempt == 3 or not rank.index, attempt
"""


def test_ranks_know_which_attempt_of_rerunfailures_it_is(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ATTEMPTS)
    ran = pytester.runpytest_inprocess("--reruns=2", "-p", "no:asyncio")
    told = ran.parseoutcomes()
    assert (told["passed"], told["rerun"]) == (1, 2)


def test_torchs_own_traces_are_no_logs_of_a_test(run: Run) -> None:
    ran = run(
        """
import logging

@pytest.mark.ranks(2)
def test_it(rank):
    logging.getLogger("mine").debug("a log of the test's")
    dist.broadcast(torch.ones(1), src=7)
""",
        "--log-level=DEBUG",
        "--tb=short",
    )
    ran.result.stdout.re_match_lines([r"-+ Captured log of rank 0 call -+", "DEBUG +mine:.*"])
    assert "c10d" not in ran.screen.partition("Captured log")[2]
