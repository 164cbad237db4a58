"""The page of a drill: each cell opens its cases, in a browser, and what was recorded is shown and never run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from rankdrill.conformance.case import Judgement, RankTale
from rankdrill.report import Tally, drill_as_html
from rankdrill.report.drill_html import MEANINGS
from tests.report.samples import FAILED, PASSED, RESULTS

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here (apt-get install chromium)")
HOSTILE = '</script><script>document.title="run"</script><img src=x onerror=alert(1)>\x1b[31m\u2028'
TALES = (RankTale("{'turn': 1}", "", ("collective.all_gather #0 on 'default' [raised, struck by fault 0]",)),) * 4


def test_every_judgement_is_explained() -> None:
    assert set(MEANINGS) == set(Judgement)


def test_what_is_said_often_stands_there_once() -> None:
    told = [replace(PASSED, tales=TALES)] * 50
    page = drill_as_html(Tally(told), elapsed=1.0, complete=True)
    assert page.count("collective.all_gather #0") == 1
    assert len(_data(page)["cases"]) == 50


def test_it_asks_no_network_for_anything() -> None:
    page = drill_as_html(Tally(RESULTS), elapsed=1.0, complete=True)
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|<link|@import|src=", page)


def test_data_cannot_end_the_element_it_stands_in() -> None:
    page = drill_as_html(Tally([replace(FAILED, why=HOSTILE)]), elapsed=1.0, complete=True)
    assert page.count("<script") == 2
    assert HOSTILE in _data(page)["strings"]


@in_a_browser
def test_the_matrix_and_what_failed_are_seen_at_once(tmp_path: Path) -> None:
    shown = _text(_opened(tmp_path, drill_as_html(Tally(RESULTS), elapsed=2.0, complete=False)))
    assert "rankdrill drill: 2 failed" in shown
    assert f"{len(RESULTS)} cases in 2 s, interrupted" in shown
    assert FAILED.case.name in shown
    assert PASSED.case.name not in shown, "what passed waits behind its cell"


@in_a_browser
def test_a_case_opens_at_its_number(tmp_path: Path) -> None:
    case = replace(FAILED, tales=TALES)
    page = drill_as_html(Tally([PASSED, case]), elapsed=2.0, complete=True)
    shown = _text(_opened(tmp_path, page, "#1"))
    for text in (case.why, case.case.repeat, *case.ranks, *case.evidence, "struck by fault 0", "{'turn': 1}"):
        assert " ".join(text.split()) in shown


@in_a_browser
def test_recorded_html_is_text(tmp_path: Path) -> None:
    case = replace(FAILED, why=HOSTILE, ranks=(HOSTILE,) * 4, tales=(RankTale(HOSTILE, HOSTILE, (HOSTILE,)),) * 4)
    dom = _opened(tmp_path, drill_as_html(Tally([case]), elapsed=2.0, complete=True), "#0")
    assert "<title>rankdrill drill</title>" in dom
    assert "<img" not in dom
    assert "<img src=x onerror=alert(1)>" in _text(dom)


@in_a_browser
def test_there_is_a_page_of_nothing(tmp_path: Path) -> None:
    assert "0 cases" in _text(_opened(tmp_path, drill_as_html(Tally([]), elapsed=0.0, complete=False)))


def _data(page: str) -> dict[str, list[object]]:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, list[object]] = json.loads(found[1])
    return data


def _opened(folder: Path, page: str, part: str = "") -> str:
    """The document as Chromium has it once its scripts have run; fails where one complained."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    assert BROWSER is not None
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [BROWSER, *options, profile, "--virtual-time-budget=5000", "--dump-dom", f"{file.as_uri()}{part}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ":CONSOLE" not in ran.stderr, ran.stderr
    return ran.stdout


def _text(dom: str) -> str:
    """What is to be read, without the scripts and the data."""
    without = re.sub(r"<(script|style).*?</\1>", "", dom, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", "", without)).split())
