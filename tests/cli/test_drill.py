"""`rankdrill drill` on real ranks: exit codes, the matrix, the documents, and the command that repeats a failure."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.fixtures import fixture
from tests.golden import agrees, steady
from tests.inner.client import Server

ROOT = Path(__file__).parents[2]
BOUND_S = 120.0

Drill = Callable[..., subprocess.CompletedProcess[str]]
"""``drill(*arguments, **environment)``: what ``python -m rankdrill drill`` does."""


@pytest.fixture
def drill(forking: Callable[[], Server], tmp_path_factory: pytest.TempPathFactory) -> Drill:
    """See `Drill`; forked from a process that has torch, which each would import anew."""
    told = tmp_path_factory.mktemp("told")

    def drilled(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        out, err = told / "out", told / "err"
        args = ["drill", *arguments]
        with open(os.devnull) as null, out.open("wb") as stdout, err.open("wb") as stderr:
            streams = (null.fileno(), stdout.fileno(), stderr.fileno())
            running = forking().fork(args, ROOT, {**os.environ, **environment}, streams, module="rankdrill")
            code = running.wait(BOUND_S)
        return subprocess.CompletedProcess(args, code, out.read_text(), err.read_text())

    return drilled


@pytest.mark.nightly
def test_two_gathers_of_ours_through_a_few_faults(drill: Drill, tmp_path: Path) -> None:
    report, junit = tmp_path / "drill.json", tmp_path / "drill.xml"
    faults = ["--fault", "unpicklable", "--fault", "kill", "--fault", "delay"]
    paths = ["--path", "all_gather_object", "--path", "gather_object"]
    done = drill(*paths, *faults, "--ranks", "2", "--payload", "small", "--json", str(report), "--junit", str(junit))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert rows["unpicklable"][0] == rows["kill"][0] == rows["delay"][0] == "raised"
    assert rows["nothing"] == ["ok", "1", "ok", "1"]
    document = json.loads(report.read_text())
    assert document["ok"] is True
    assert {case["strike"] for case in document["cases"]} == {"none", "unpicklable", "kill", "delay"}
    assert {case["rank"] for case in document["cases"] if case["strike"] == "kill"} == {0, 1}
    assert {suite.get("failures") for suite in ElementTree.parse(junit).getroot()} == {"0"}


def test_the_page_says_what_each_rank_sent_received_and_did(drill: Drill, tmp_path: Path) -> None:
    html = tmp_path / "drill.html"
    options = ("--ranks", "2", "--payload", "small", "--fault", "none", "--fault", "unpicklable", "--html", str(html))
    done = drill("--path", "all_gather_object", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r'id="data">(.*?)</script>', html.read_text(), re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    said = data["strings"]
    right = next(case for case in data["cases"] if said[case["name"]].startswith("nothing broken"))
    tales = right["tales"]
    assert [said[tale["sent"]].startswith(f"{{'rank': {rank}, ") for rank, tale in enumerate(tales)] == [True, True]
    assert all(said[tale["came"]].startswith("[{'rank': 0, ") for tale in tales)
    assert all(said[tale["steps"][0]].startswith("object.dump") for tale in tales)
    struck = [case for case in data["cases"] if case["struck"] >= 0]
    assert struck
    for case in struck:
        assert said[case["tales"][case["struck"]]["came"]].startswith("EncodeError: ")
        assert any("struck by fault 0" in said[step] for step in case["tales"][case["struck"]]["steps"])
        assert said[case["repeat"]].startswith("rankdrill drill --path all_gather_object --ranks 2 --fault ")


def test_torchs_own_gather_hangs_and_the_printed_command_repeats_it(drill: Drill, tmp_path: Path) -> None:
    report = tmp_path / "drill.json"
    arguments = ["--path", "torch.all_gather_object", "--fault", "unpicklable", "--ranks", "2", "--payload", "small"]
    arguments += ["--jobs", "1"]  # which of several worlds takes a case is a race, and each numbers its collectives
    done = drill(*arguments, "--json", str(report))
    assert done.returncode == 1, done.stdout + done.stderr
    agrees(steady(done.stdout, ROOT), fixture("reports") / "drill_failed.txt")
    failed = next(case for case in json.loads(report.read_text())["cases"] if not case["passed"])
    assert failed["repeat"] in done.stdout
    again = drill(*shlex.split(failed["repeat"])[2:])
    assert again.returncode == 1
    assert "SPLIT 1" in again.stdout


def test_a_gather_of_somebody_elses_is_drilled_by_its_import_path(drill: Drill, tmp_path: Path) -> None:
    junit = tmp_path / "drill.xml"
    ours, theirs = "tests.conformance.broken:RIGHT", "tests.conformance.broken:WRONG_ORDER"
    done = drill(
        "--path", ours, "--path", theirs, "--ranks", "2", "--payload", "small", "--fault", "none", "--junit", str(junit)
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"WRONG  {theirs}" in done.stdout
    assert "result[0]['rank'] is 1, not 0" in done.stdout
    right, wrong = ElementTree.parse(junit).getroot()
    assert (right.get("name"), right.get("failures")) == (ours, "0")
    assert wrong.get("failures") == wrong.get("tests")
    again = next(line for line in done.stdout.splitlines() if "again: " in line).partition("again: ")[2]
    assert "WRONG" in drill(*shlex.split(again)[2:]).stdout


def test_of_somebody_elses_the_directory_stays_and_the_adapter_answers_for_itself(drill: Drill) -> None:
    removes, cannot = "tests.conformance.broken:REMOVES", "tests.conformance.broken:CANNOT_DRESS"
    done = drill("--path", removes, "--path", cannot, "--ranks", "2", "--payload", "small", "--fault", "none")
    told = " ".join(done.stdout.split())
    assert done.returncode == 1
    assert "itself is gone" in told
    assert "the adapter 'cannot dress', and not its gather, failed with the payload 'small': ValueError" in told


def test_a_fault_that_finds_no_step_is_a_failure(drill: Drill) -> None:
    line = 'rank 1: kill before file.open on "no such file"'
    done = drill("--path", "all_gather_object", "--ranks", "2", "--fault", line)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "UNFIRED 1" in done.stdout
    assert "did not fire: rank 1 took no such step" in done.stdout


def test_a_rank_outside_the_world_is_refused(drill: Drill) -> None:
    done = drill("--path", "all_gather_object", "--ranks", "2", "--fault", "rank 3: kill before collective.*")
    assert done.returncode == 2
    assert "the world has 2 ranks: 0 to 1" in done.stderr


def test_ctrl_c_shows_what_is_known_and_exits_with_130() -> None:
    command = [sys.executable, "-m", "rankdrill", "drill", "--ranks", "2", "--fault", "delay"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("drilling: 1 of ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "interrupted after" in out
    assert "Traceback" not in out + err


@pytest.mark.nightly
def test_colour_only_where_it_is_wanted(drill: Drill) -> None:
    arguments = ["--path", "all_gather_object", "--ranks", "2", "--fault", "none", "--payload", "small"]
    agrees(steady(drill(*arguments).stdout, ROOT), fixture("reports") / "drill_passed.txt")
    assert "\x1b[" in drill(*arguments, FORCE_COLOR="1").stdout


def test_the_list_explains_paths_strikes_and_payloads(drill: Drill) -> None:
    done = drill("--list")
    assert done.returncode == 0
    for word in ("get_tensors_parallel", "torch.all_gather_object", "unpicklable", "8mib"):
        assert word in done.stdout


@pytest.mark.nightly
def test_a_class_of_conformance_is_asked_what_it_promises(drill: Drill, tmp_path: Path) -> None:
    report, junit = tmp_path / "drill.json", tmp_path / "drill.xml"
    path = "tests.conformance.suites:TestInLatin1"
    asked = ["--ask", "right", "--ask", "contained", "--ask", "groups: one half alone-4ranks"]
    done = drill("--path", path, *asked, "--json", str(report), "--junit", str(junit))
    assert done.returncode == 1, done.stdout + done.stderr
    rows = {words[0]: words[1:] for line in done.stdout.splitlines() if (words := line.split())}
    assert rows["right"][0] == "BROKEN"
    assert rows["groups"][0] == "kept"
    assert rows["contained"][:2] == ["not", "promised;"]
    document = json.loads(report.read_text())
    assert not document["ok"]
    failed = [answer for answer in document["answers"] if answer["promised"] and answer["complaint"]]
    assert {answer["question"] for answer in failed} == {"text beyond ASCII-2ranks"}
    (suite,) = ElementTree.parse(junit).getroot()
    assert suite.get("failures") == "1"
    assert failed[0]["repeat"] in done.stdout
    again = drill(*shlex.split(failed[0]["repeat"])[2:])
    assert again.returncode == 1
    assert "BROKEN   1 of 1 question" in again.stdout


@pytest.mark.nightly
def test_an_adapter_of_ones_own_is_asked_and_struck(drill: Drill) -> None:
    path = "tests.conformance.suites:RIGHT"
    asked = drill("--path", path, "--ranks", "2", "--ask", "right: tuples-2ranks")
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "kept     1 question" in asked.stdout
    struck = drill("--path", path, "--ranks", "2", "--payload", "small", "--fault", "none")
    assert struck.returncode == 0
    assert "kept" not in struck.stdout


def test_what_is_never_asked_is_refused(drill: Drill) -> None:
    done = drill("--path", "tests.conformance.suites:RIGHT", "--ask", "tuples")
    assert done.returncode == 2
    assert "is asked nothing of that name; try right: tuples-2ranks, right: tuples-3ranks" in done.stderr


def test_a_promise_of_which_nothing_is_asked_is_not_proposed(drill: Drill) -> None:
    done = drill("--path", "tests.conformance.suites:OF_NUMBERS", "--ask", "contained")
    assert done.returncode == 2
    assert "is asked nothing of that name; try right, repeatable, groups, clean, apart, survives" in done.stderr
