"""Every way that a test has to end, plain and on ranks: the same reports, the same JUnit, the same exit code."""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Begin
from tests.fixtures import fixture

AT_LEAST = 120  # bodies; fewer have been collected when one of the libraries is missing
SESSION_S = 600
ENDINGS = ("failure", "error", "skipped")


@dataclass
class Ran:
    """One session over the whole catalogue."""

    code: int
    reports: dict[str, list[list[object]]]
    cases: dict[str, list[list[tuple[str, str, str]]]]
    screen: str


def ran(begin: Begin, folder: Path, mark: str, *args: str) -> Ran:
    shutil.copytree(fixture("catalogue"), folder)
    if mark:
        (folder / "setting.py").write_text(f"import pytest\n\nMARK = [pytest.mark.{mark}]\n")
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = strict\n")
    wide = {**os.environ, "COLUMNS": "250"}  # the summary cuts its lines at the width of the screen
    options = ["-q", "--junitxml=junit.xml", "-p", "no:cacheprovider", *args]
    screen = folder / "screen.txt"
    with open(os.devnull) as null, screen.open("wb") as shown:
        streams = (null.fileno(), shown.fileno(), shown.fileno())
        code = begin(options, folder, streams, environ=wide).wait(SESSION_S)
    reports = json.loads((folder / "reports.json").read_text())
    cases: dict[str, list[list[tuple[str, str, str]]]] = {}
    for case in ET.parse(folder / "junit.xml").getroot().iter("testcase"):
        endings = [one for one in case if one.tag in ENDINGS]
        # A failure's message begins with the rank on ranks; a skip's is the reason, and the same.
        told = sorted((one.tag, str(one.get("type")), _message(one)) for one in endings)
        cases.setdefault(f"{case.get('classname')}::{case.get('name')}", []).append(told)
    return Ran(code, reports, cases, screen.read_text())


def _message(ending: ET.Element) -> str:
    return str(ending.get("message")) if ending.tag == "skipped" else ""


@pytest.fixture(scope="module")
def plain(begin: Begin, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(begin, tmp_path_factory.mktemp("plain") / "catalogue", "")


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.nightly), 2])
def ranked(begin: Begin, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(begin, tmp_path_factory.mktemp("ranked") / "catalogue", f"ranks({request.param})")


def different(one: dict[str, list[object]], other: dict[str, list[object]]) -> list[str]:
    names = sorted(one.keys() | other.keys())
    return [f"{name}: {one.get(name)} / {other.get(name)}" for name in names if one.get(name) != other.get(name)]


def test_the_catalogue_is_whole(plain: Ran) -> None:
    assert len(plain.reports) >= AT_LEAST
    kinds = {json.dumps(report[1:]) for reports in plain.reports.values() for report in reports}
    assert len(kinds) >= 8, "passes, fails, skips and xfails, in each phase"
    assert plain.code == 1


def test_every_test_is_reported_as_when_plain(plain: Ran, ranked: Ran) -> None:
    found = different(plain.reports, ranked.reports)  # type: ignore[arg-type]
    assert not found, "\n".join(found)


def test_junit_is_the_same(plain: Ran, ranked: Ran) -> None:
    found = different(plain.cases, ranked.cases)  # type: ignore[arg-type]
    assert not found, "\n".join(found)


def test_the_exit_code_is_the_same(plain: Ran, ranked: Ran) -> None:
    assert plain.code == ranked.code == 1


def of_each_kind(names: list[str], plain: Ran) -> list[str]:
    """The first of each file and class that is reported as it is; without torch's classes, which import for seconds."""
    names = [name for name in names if not name.startswith("test_torch.py")]
    kinds = {(name.rpartition("::")[0], json.dumps(plain.reports[name])): name for name in reversed(names)}
    return [name for name in names if name in kinds.values()]


@pytest.mark.nightly
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_exit_code_of_what_passes_is_0(begin: Begin, plain: Ran, tmp_path: Path, every: bool) -> None:
    good = [name for name, reports in plain.reports.items() if "failed" not in json.dumps(reports)]
    # Without the rest of their class or module, what fails at its end would be put down to these.
    good = [name for name in good if not any(word in name.lower() for word in ("teardown", "cleanup"))]
    assert len(good) >= 40
    good = good if every else of_each_kind(good, plain)
    done = ran(begin, tmp_path / "catalogue", "ranks(2)", *good)
    assert done.code == 0, done.screen[-4000:]


def test_every_failure_names_a_rank(ranked: Ran) -> None:
    summary = [line for line in ranked.screen.splitlines() if line.startswith(("FAILED ", "ERROR ", "SUBFAILED"))]
    assert len(summary) > 50
    nameless = [line for line in summary if "rank" not in line and "XPASS" not in line and "subtest" not in line]
    # Without a marker's condition that can be evaluated, nothing is sent to ranks; Hypothesis speaks of all examples.
    excused = (
        "skipif_that_cannot",
        "no_such_fixture",
        "assumes_too_much",
        "rejects_all",
        "returns_something",
        "strict_passes",
        "strict_and_passes",  # before pytest 9 its line does not say XPASS
    )
    assert not [line for line in nameless if not any(name in line for name in excused)], "\n".join(nameless)
