"""Whole repositories, laid out as strangers lay them out: every test ends as its author would have it."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.conftest import Session
from tests.fixtures import fixture

UNITTESTS = {
    "checks.check_averages.Averages::test_weighted": "passed",
    "checks.check_averages.Averages::test_average_of_averages": "xfailed",
    "checks.check_averages.Averages::test_of_each_length": "passed",
    "checks.check_averages.Averages::test_median": "skipped",
    "checks.check_averages.Averages::test_nothing_on_the_last": "failed",
    "checks.check_averages.Averages::test_cleaned_up": "passed",
    "checks.check_averages.WithAFixture::test_banner": "passed",
    "checks.check_averages.Alone::test_alone": "passed",
}

STRICT = {
    "test_strict::test_silent": "passed",
    "test_strict::test_warns": "failed",
    "test_strict::test_warns_on_one": "failed",
    "test_strict::test_the_old_way": "passed",
    "test_strict::test_forgiven_by_a_mark": "passed",
    "test_strict::test_expects_its_warning": "passed",
    "test_strict::test_marked": "passed",
    "test_strict::test_on_other_hardware": "skipped",
    "test_strict::test_known": "xfailed",
    "test_strict::test_mended": "failed",
    "test_strict::test_leaves_a_file_open": "failed",
}

SRC_LAYOUT = {
    "tests.test_counting::test_counts": "passed",
    "tests.test_counting::test_sizes[1ranks]": "passed",
    "tests.test_counting::test_sizes[3ranks]": "passed",
    "tests.deep.test_counting::test_counts": "passed",
    "tests.deep.test_counting::test_order": "passed",
    "tests.deep.test_counting::test_the_other_module_of_this_name": "passed",
    "tests.deep.test_counting::test_fails_on_one": "failed",
}


def ended(case: ET.Element) -> str:
    skipped = case.find("skipped")
    if skipped is not None:
        return "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"
    failing = (what for what, tag in (("failed", "failure"), ("error", "error")) if case.find(tag) is not None)
    return next(failing, "passed")


def run(name: str, pytester: pytest.Pytester, session: Session, *args: str) -> tuple[dict[str, str], str]:
    """Run all tests of a copy of that repository; returns how each ended, and the screen."""
    shutil.copytree(fixture("repos") / name, pytester.path, dirs_exist_ok=True)
    result = session("--junitxml=junit.xml", "-p", "no:cacheprovider", *args)
    cases = ET.parse(Path("junit.xml")).getroot().iter("testcase")
    told = [(f"{case.get('classname')}::{case.get('name')}", ended(case)) for case in cases]
    assert len(dict(told)) == len(told), "a test was reported twice"
    return dict(told), str(result.stdout)


def test_unittest_classes_that_a_conftest_file_puts_on_ranks(pytester: pytest.Pytester, session: Session) -> None:
    told, screen = run("unittests", pytester, session, "--processes=3")
    assert told == UNITTESTS
    assert "rank 2 failed: AssertionError: [] is not true : no numbers" in screen


def test_a_strict_repository_whose_warnings_are_errors(pytester: pytest.Pytester, session: Session) -> None:
    told, screen = run("strict", pytester, session)
    assert told == STRICT
    assert "ranks 0, 1 failed: UserWarning: careful" in screen
    assert "rank 1 failed: ResourceWarning: only here" in screen
    assert "on_rank" not in screen, "frames of rankdrill say nothing about the tests"


@pytest.mark.parametrize("args", [(), ("tests/test_counting.py", "tests/deep")], ids=["all", "inner ones later"])
def test_a_src_layout_with_packages_of_tests_and_nested_conftest_files(
    pytester: pytest.Pytester, session: Session, args: tuple[str, ...]
) -> None:
    told, screen = run("src_layout", pytester, session, *args)
    assert told == SRC_LAYOUT
    assert "rank 1 failed: assert 1 == (1 - 1)" in screen
