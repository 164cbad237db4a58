"""The page of a drill: each cell opens its cases, in a browser, and what was recorded is shown and never run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from rankdrill.conformance.case import Judgement, RankTale
from rankdrill.report import Tally, drill_as_html
from rankdrill.report.drill_html import MEANINGS
from tests.report.browser import data_of, in_a_browser, opened, text_of
from tests.report.samples import FAILED, PASSED, RESULTS

HOSTILE = '</script><script>document.title="run"</script><img src=x onerror=alert(1)>\x1b[31m\u2028'
TALES = (RankTale("{'turn': 1}", "", ("collective.all_gather #0 on 'default' [raised, struck by fault 0]",)),) * 4


def test_every_judgement_is_explained() -> None:
    assert set(MEANINGS) == set(Judgement)


def test_what_is_said_often_stands_there_once() -> None:
    told = [replace(PASSED, tales=TALES)] * 50
    page = drill_as_html(Tally(told), elapsed=1.0, complete=True)
    assert page.count("collective.all_gather #0") == 1
    assert len(data_of(page)["cases"]) == 50


def test_it_asks_no_network_for_anything() -> None:
    page = drill_as_html(Tally(RESULTS), elapsed=1.0, complete=True)
    assert "default-src 'none'" in page
    assert not re.search(r"https?://(?!www.w3.org/2000/svg\b)|<link|@import|src=", page)  # a name, not a place


def test_data_cannot_end_the_element_it_stands_in() -> None:
    page = drill_as_html(Tally([replace(FAILED, why=HOSTILE)]), elapsed=1.0, complete=True)
    assert page.count("<script") == 2
    assert HOSTILE in data_of(page)["strings"]


@in_a_browser
def test_the_matrix_and_what_failed_are_seen_at_once(tmp_path: Path) -> None:
    shown = text_of(opened(tmp_path, drill_as_html(Tally(RESULTS), elapsed=2.0, complete=False)))
    assert "rankdrill drill: 2 failed" in shown
    assert f"{len(RESULTS)} cases in 2 s, interrupted" in shown
    assert FAILED.case.name in shown
    assert PASSED.case.name not in shown, "what passed waits behind its cell"


@in_a_browser
def test_a_case_opens_at_its_number(tmp_path: Path) -> None:
    case = replace(FAILED, tales=TALES)
    page = drill_as_html(Tally([PASSED, case]), elapsed=2.0, complete=True)
    shown = text_of(opened(tmp_path, page, "#1"))
    for text in (case.why, case.case.repeat, *case.ranks, *case.evidence, "struck by fault 0", "{'turn': 1}"):
        assert " ".join(text.split()) in shown


@in_a_browser
def test_recorded_html_istext_of(tmp_path: Path) -> None:
    case = replace(FAILED, why=HOSTILE, ranks=(HOSTILE,) * 4, tales=(RankTale(HOSTILE, HOSTILE, (HOSTILE,)),) * 4)
    dom = opened(tmp_path, drill_as_html(Tally([case]), elapsed=2.0, complete=True), "#0")
    assert "<title>rankdrill drill</title>" in dom
    assert "<img" not in dom
    assert "<img src=x onerror=alert(1)>" in text_of(dom)


@in_a_browser
def test_there_is_a_page_of_nothing(tmp_path: Path) -> None:
    assert "0 cases" in text_of(opened(tmp_path, drill_as_html(Tally([]), elapsed=0.0, complete=False)))
