"""``--rankdrill-json``: every test on ranks, with what its ranks did, however the session ends and whoever runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Session
from tests.plugin.conftest import HEADER, WITHOUT_TORCH, Ran

Run = Callable[..., Ran]
Told = Callable[..., dict[str, dict[str, Any]]]
FILE = "results.json"


@pytest.fixture
def document(pytester: pytest.Pytester) -> Callable[[], dict[str, Any]]:
    """Reads what a session has written."""

    def read() -> dict[str, Any]:
        found: dict[str, Any] = json.loads((pytester.path / FILE).read_text())
        return found

    return read


@pytest.fixture
def told(run: Run, document: Callable[[], dict[str, Any]]) -> Told:
    """Runs a test file; returns the results by the test's name."""

    def results(source: str, *args: str) -> dict[str, dict[str, Any]]:
        run(source, f"--rankdrill-json={FILE}", *args)
        tests = document()["tests"]
        names = [test["nodeid"].partition("::")[2] for test in tests]
        assert len(names) == len(set(names)), names
        return dict(zip(names, tests, strict=True))

    return results


EVERY_END = """
import ctypes

def step():
    ctypes.string_at(0)

@pytest.mark.ranks(2)
def test_passes(rank):
    rank.barrier()

@pytest.mark.ranks(2)
def test_raises(rank):
    if rank.index:
        raise ValueError("no batch")

@pytest.mark.ranks(2)
def test_dies(rank):
    rank.barrier()
    if rank.index:
        step()

@pytest.mark.ranks(3, deadline=2)
def test_hangs(rank):
    if rank.index == 1:
        time.sleep(60)
    rank.barrier()

@pytest.mark.ranks(3)
def test_disagrees(rank):
    dist.broadcast(torch.ones(1), 1 if rank.index == 2 else 0)

@pytest.mark.ranks(2, faults=["rank 1: kill before collective.broadcast"])
def test_unfired(rank):
    rank.barrier()

@pytest.mark.ranks(2, faults=["rank 1: kill before collective.barrier"])
def test_planned(rank):
    if rank.index:
        rank.barrier()

@pytest.mark.ranks(2)
def test_one_skips(rank):
    if rank.index:
        pytest.skip("not here")

@pytest.mark.skip(reason="another day")
@pytest.mark.ranks(2)
def test_skipped(rank): ...

@pytest.mark.xfail(reason="known")
@pytest.mark.ranks(2)
def test_expected(rank):
    assert False

@pytest.fixture
def broken():
    raise OSError("no disk")

@pytest.mark.ranks(2)
def test_cannot_begin(broken): ...

def test_plain(): ...
"""


def test_every_end_of_a_test_is_told(told: Told) -> None:
    tests = told(EVERY_END, "--rankdrill-seed=5")
    assert {name: (test["outcome"], test["phase"], test["verdict"]) for name, test in tests.items()} == {
        "test_passes": ("passed", "call", "together"),
        "test_raises": ("failed", "call", "asymmetric"),
        "test_dies": ("failed", "call", "died"),
        "test_hangs": ("failed", "call", "hang"),
        "test_disagrees": ("failed", "call", "broken contract"),
        "test_unfired": ("failed", "call", "together"),
        "test_planned": ("passed", "call", "together"),
        "test_one_skips": ("failed", "call", "together"),
        "test_skipped": ("skipped", "setup", None),
        "test_expected": ("xfailed", "call", "together"),
        "test_cannot_begin": ("error", "setup", "together"),
    }
    for test in tests.values():
        assert test["seed"] == 5
        assert test["run_again"] == f"python -m pytest '{test['nodeid']}' --rankdrill-seed=5"
        assert len(test["ranks"]) in (0, test["world_size"])
    _check_ends(tests)
    _check_others(tests)


def _check_ends(tests: dict[str, dict[str, Any]]) -> None:
    raised = tests["test_raises"]
    assert (raised["culprits"], raised["victims"]) == ([1], [])
    assert raised["message"] == "rank 1 failed: ValueError: no batch"
    assert raised["ranks"][0]["status"] == "returned"
    assert {**raised["ranks"][1]["raised"], "site": None} == {"type": "ValueError", "message": "no batch", "site": None}
    assert raised["ranks"][1]["raised"]["site"]["function"] == "test_raises"

    died = tests["test_dies"]["ranks"][1]
    assert (died["died"]["signal"], died["died"]["code"], died["died"]["how"]) == ("SIGSEGV", None, None)
    assert died["died"]["site"]["function"] == "step"
    assert (died["last_call"]["site"]["function"], died["last_call"]["step"].split()[0]) == (
        "test_dies",
        "collective.barrier",
    )

    hung = tests["test_hangs"]
    asleep, waiting = hung["ranks"][1], hung["ranks"][0]
    assert (hung["culprits"], hung["victims"]) == ([1], [0, 2])
    assert (asleep["stuck"]["in"], asleep["stuck"]["waits_for"]) == (None, [])
    assert asleep["stuck"]["innermost"]["function"] == "test_hangs"
    assert waiting["stuck"]["waits_for"] == [1]
    assert waiting["stuck"]["in"]["step"].startswith("collective.barrier #")
    assert waiting["stuck"]["in"]["site"]["function"] == "test_hangs"


def _check_others(tests: dict[str, dict[str, Any]]) -> None:
    (finding,) = tests["test_disagrees"]["findings"]
    assert (finding["kind"], finding["culprits"], finding["argument"]) == ("root mismatch", [2], "root")
    assert [side["ranks"] for side in finding["sides"]] == [[2], [0, 1]]
    assert all(site["function"] == "test_disagrees" for side in finding["sides"] for site in side["sites"])

    (reason,) = tests["test_unfired"]["unfired"]
    assert "rank 1: kill before collective.broadcast did not fire" in reason
    planned = tests["test_planned"]["ranks"][1]
    assert (planned["by_plan"], planned["died"]["signal"]) == (True, "SIGKILL")
    assert [rank["test"] for rank in tests["test_one_skips"]["ranks"]] == ["passed", "skipped"]
    assert tests["test_skipped"]["message"] == "another day"
    assert (tests["test_skipped"]["ranks"], tests["test_skipped"]["summary"]) == ([], None)
    assert tests["test_cannot_begin"]["ranks"][0]["raised"]["type"] == "OSError"


def test_a_teardown_that_fails_too_is_told_as_pytest_does(
    pytester: pytest.Pytester, document: Callable[[], dict[str, Any]]
) -> None:
    pytester.makepyfile(f"""{HEADER}
@pytest.fixture
def broken():
    yield
    raise OSError("no disk")

@pytest.mark.ranks(2)
def test_it(broken):
    assert False
""")
    pytester.runpytest_inprocess(f"--rankdrill-json={FILE}", "-p", "no:asyncio").assert_outcomes(failed=1, errors=1)
    assert [(test["phase"], test["outcome"]) for test in document()["tests"]] == [
        ("call", "failed"),
        ("teardown", "error"),
    ]


def test_a_session_without_tests_on_ranks_writes_an_empty_one(run: Run, document: Callable[[], dict[str, Any]]) -> None:
    ran = run("def test_plain(): ...", f"--rankdrill-json={FILE}")
    found = document()
    assert (found["tests"], found["complete"], found["exit_status"]) == ([], True, 0)
    assert f"rankdrill: 0 results in {FILE}" in ran.screen


def test_without_the_option_nothing_is_written_and_reports_carry_nothing(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
def pytest_runtest_logreport(report):
    assert not [name for name in vars(report) if "json" in name]
""")
    run("@pytest.mark.ranks(2)\ndef test_it(): ...").result.assert_outcomes(passed=1)
    assert list(pytester.path.glob("*.json")) == []


def test_workers_of_xdist_send_theirs(
    pytester: pytest.Pytester, session: Session, document: Callable[[], dict[str, Any]]
) -> None:
    source = "\n".join(f"@pytest.mark.ranks(2)\ndef test_{n}(rank): assert rank.index != {n}" for n in range(4))
    pytester.makepyfile(test_it=WITHOUT_TORCH + source)
    options = ("-n2", f"--rankdrill-json={FILE}", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:benchmark")
    ran = session(*options)
    ran.assert_outcomes(passed=2, failed=2)
    found = document()
    assert found["complete"]
    tests = sorted(found["tests"], key=lambda test: str(test["nodeid"]))
    assert [test["culprits"] for test in tests] == [[0], [1], [], []]
    assert tests[1]["message"].startswith("rank 1 failed: ")
    assert {test["seed"] for test in tests} == {found["seed"]}
    assert list(pytester.path.glob(".*.part")) == []


STOPPED = """
@pytest.mark.ranks(2)
def test_first(): ...

{}

@pytest.mark.ranks(2)
def test_third(): ...
"""
INTERRUPTS = """
def test_second():
    raise KeyboardInterrupt
"""
FAILS = """
@pytest.mark.ranks(2)
def test_second():
    assert False
"""


@pytest.mark.parametrize(
    ("second", "option", "tests", "status"),
    [
        (INTERRUPTS, "--verbose", 1, pytest.ExitCode.INTERRUPTED),
        (FAILS, "--exitfirst", 2, pytest.ExitCode.TESTS_FAILED),
    ],
    ids=["interrupted", "exitfirst"],
)
def test_a_session_that_does_not_come_to_its_end_has_written_what_there_was(
    run: Run,
    document: Callable[[], dict[str, Any]],
    second: str,
    option: str,
    tests: int,
    status: pytest.ExitCode,
) -> None:
    ran = run(STOPPED.format(second), f"--rankdrill-json={FILE}", option, subprocess=True)
    found = document()
    assert (found["complete"], found["exit_status"], len(found["tests"])) == (False, status, tests)
    assert ran.result.ret == status


def test_an_older_file_is_there_until_the_new_one_is_whole(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / FILE).write_text("old")
    run(
        f"""
from pathlib import Path

def test_plain():
    assert Path({str(pytester.path / FILE)!r}).read_text() == "old"
    os.chdir("/")
""",
        f"--rankdrill-json={FILE}",
    ).result.assert_outcomes(passed=1)
    os.chdir(pytester.path)
    assert json.loads((pytester.path / FILE).read_text())["complete"]


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("nowhere/results.json", "there is no directory nowhere; make it first"),
        (".", "is a directory; give a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_the_start(run: Run, file: str, says: str) -> None:
    ran = run("def test_it(): ...", f"--rankdrill-json={file}")
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --rankdrill-json {file}: {says}" in str(ran.result.stderr)
    assert ran.cases == {}


def test_a_file_that_can_be_written_no_more_fails_the_session(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "out").mkdir()
    ran = run(
        f"""
def test_it():
    os.rmdir({str(pytester.path / "out")!r})
""",
        "--rankdrill-json=out/results.json",
    )
    assert ran.result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert "--rankdrill-json out/results.json: No such file or directory; nothing was written" in ran.screen


def test_help_says_what_it_is_for(pytester: pytest.Pytester) -> None:
    text = " ".join(str(pytester.runpytest_inprocess("--help", "-p", "no:asyncio").stdout).split())
    assert "--rankdrill-json=FILE when the session ends, write to FILE as JSON what came of each test on ranks" in text


def test_of_hypothesis_the_example_that_it_settled_on(told: Told) -> None:
    tests = told("""
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(database=None, deadline=None, report_multiple_bugs=False)
@given(n=st.integers(0, 20))
def test_it(rank, n):
    if rank.index:
        assert n < 7, f"seen {n}"
""")
    (test,) = tests.values()
    assert (test["outcome"], test["phase"], test["culprits"]) == ("failed", "call", [1])
    assert "seen 7" in test["ranks"][1]["raised"]["message"]


def test_each_attempt_of_rerunfailures_is_told_by_itself(
    pytester: pytest.Pytester, document: Callable[[], dict[str, Any]]
) -> None:
    pytester.makepyfile(f"""{HEADER}
from pathlib import Path

@pytest.mark.ranks(2)
def test_it(rank):
    attempts = Path(f"attempts-{{rank.index}}")
    attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
    assert len(attempts.read_text()) == 2 or not rank.index
""")
    ran = pytester.runpytest_inprocess("--reruns=2", f"--rankdrill-json={FILE}", "-p", "no:asyncio")
    ran.assert_outcomes(passed=1)
    tests = document()["tests"]
    assert [(test["outcome"], test["culprits"]) for test in tests] == [("rerun", [1]), ("passed", [])]


LASTS = """
@pytest.mark.ranks(2, deadline=2)
def test_hangs(rank):
    time.sleep(60)

@pytest.mark.ranks(2)
def test_dies(rank):
    time.sleep(0.5)
    if rank.index:
        os._exit(3)
    rank.barrier()

@pytest.mark.ranks(2)
def test_dies_with_a_fixture(rank, tmp_path):
    time.sleep(0.5)
    os._exit(3)
"""


def test_the_time_of_a_phase_that_no_rank_ended_is_told(told: Told) -> None:
    results = told(LASTS)
    assert {name: test["phase"] for name, test in results.items()} == dict.fromkeys(results, "call")
    assert 2 <= results["test_hangs"]["elapsed_s"] < 60
    assert 0.5 <= results["test_dies"]["elapsed_s"] < 60
    assert 0.5 <= results["test_dies_with_a_fixture"]["elapsed_s"] < 60


LOSES = """
@pytest.mark.ranks(3)
def test_loses(rank):
    if rank.index == 0:
        rank.store.set("seen", "0")
    rank.barrier()
    rank.store.set("seen", str(int(rank.store.get("seen")) + 1))
"""


def test_a_finding_that_is_told_at_the_end_stands_with_it(run: Run, document: Callable[[], dict[str, Any]]) -> None:
    run(LOSES, f"--rankdrill-json={FILE}")
    (result,) = (test for test in document()["tests"] if test["outcome"] != "passed")
    assert [finding["kind"] for finding in result["findings"]] == ["lost update"]
    assert result["culprits"] == [0, 1, 2]


def test_a_subtest_that_failed_is_a_result_of_its_own(run: Run, document: Callable[[], dict[str, Any]]) -> None:
    ran = run(
        """
import unittest

@pytest.mark.ranks(3)
class TestIt(unittest.TestCase):
    def test_parts(self):
        for part in range(2):
            with self.subTest(part=part):
                assert part == 0 or dist.get_rank() != 2
""",
        f"--rankdrill-json={FILE}",
    )
    assert ran.result.ret == pytest.ExitCode.TESTS_FAILED
    failed = [test for test in document()["tests"] if test["outcome"] == "failed"]
    assert [(test["culprits"], test["phase"]) for test in failed] == [([2], "call")]
    assert failed[0]["message"].startswith("rank 2 failed: ")
