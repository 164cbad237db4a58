"""The page of a run: in a browser the culprit is read first, steps can be gone through, and nothing recorded is run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.diagnosis import Finding, FindingKind, Side
from rankdrill.ledger import Record, State
from rankdrill.report import Picture, picture_of, run_as_html
from rankdrill.report.picture import MOST_STEPS, Lane, Stack, newest, stacks_of
from rankdrill.step import Kind, Site, Step
from tests.report.browser import data_of, in_a_browser, opened, text_of

HOSTILE = '</script><script>document.title="run"</script><img src=x onerror=alert(1)>\x1b[31m\u2028'
SITE = Site("train.py", 41, "step")
MS = 1_000_000


def record(
    number: int, op: str = "all_reduce", *, ended: bool = True, fault: int | None = None, shown: str = ""
) -> Record:
    step = Step(Kind.COLLECTIVE, op, "default", shown, sequence=number, site=SITE)
    begin = 5 * MS + number * MS
    state, end = (State.ENDED, begin + MS // 2) if ended else (State.BEGUN, 0)
    return Record(number, step, state, begin, end, 1, fault, "", 0)


def lanes(size: int, left: int, calls: int = 5, shown: str = "") -> list[Lane]:
    """The ranks of a world in which rank `left` leaves out the last of so many calls."""
    done = tuple(record(number, shown=shown) for number in range(calls - 1))
    until_there = (*done, record(calls - 1, ended=False, shown=shown))
    waits = [
        Lane(rank, "stuck", "waits in all_reduce", "victim", (left,), until_there)
        for rank in range(size)
        if rank != left
    ]
    return sorted([*waits, Lane(left, "returned", "returned", "culprit", (), done)], key=lambda lane: lane.rank)


def picture(its: Sequence[Lane], left: int, calls: int = 5, **more: object) -> Picture:
    said = f"all_reduce #{calls - 1} on 'default'"
    side = Side((left,), f"leaves out {said}", (SITE,))
    finding = Finding(FindingKind.MISSING, said, "", (side,), (left,), "default", calls - 1)
    return Picture("a run", False, finding.lines[0], tuple(its), findings=(finding,), repeat="repeat it", **more)  # type: ignore[arg-type]


def test_it_asks_no_network_for_anything() -> None:
    page = run_as_html(picture(lanes(4, 2), 2))
    assert "default-src 'none'" in page
    found = re.findall(r"https?://[^\"'` ]*|<link|@import|src=", page)
    assert set(found) <= {"http://www.w3.org/2000/svg"}  # a name, not a place


def test_of_many_steps_the_newest_are_there_and_the_rest_is_counted() -> None:
    records = [record(number) for number in range(100)]
    assert newest(records, 10, dropped=3) == (tuple(records[90:]), 93)
    assert newest(records, 200) == (tuple(records), 0)
    assert MOST_STEPS >= 4096, "a world of a few ranks shows all that its ledgers hold"


def test_ranks_at_the_same_lines_share_a_stack() -> None:
    told = [(0, "Thread 0x7f00000000 a.py:3"), (1, "Thread 0x7f11111111 a.py:3"), (2, ""), (3, "b.py:4")]
    assert list(stacks_of(told)) == [Stack((0, 1), told[0][1]), Stack((3,), "b.py:4")]


def test_data_cannot_end_the_element_it_stands_in() -> None:
    page = run_as_html(picture(lanes(3, 1, shown=HOSTILE[:60]), 1, stacks=(Stack((0,), HOSTILE),)))
    assert page.count("<script") == 2
    assert data_of(page)["stacks"][0]["text"] == HOSTILE


@in_a_browser
def test_a_real_hang_names_its_culprit_and_who_waits_for_it(tmp_path: Path) -> None:
    def body() -> None:
        for turn in range(6):
            if turn != 4 or dist.get_rank() != 2:
                dist.all_reduce(torch.ones(2))

    with rankdrill.World(3) as world:
        outcome = world.run(body, deadline=30)
    page = run_as_html(picture_of(outcome, "a run", "rankdrill run -n 3 train.py"))
    dom = opened(tmp_path, page)
    shown = text_of(dom)
    assert outcome.findings[0].lines[0] in shown
    assert "ranks 0, 1 wait for rank 2" in shown
    assert "rankdrill run -n 3 train.py" in shown
    assert "The last collectives of 'default', by number" in shown
    assert 'class="label culprit"' in dom
    assert 'class="node culprit"' in dom
    assert 'class="none" title="never entered"' in dom, "its cell of the call that it left out"
    assert re.search(r"✕ returned", shown)
    assert "waits for rank 2" in dom


@in_a_browser
def test_a_run_that_ended_well_is_shown_too(tmp_path: Path) -> None:
    with rankdrill.World(2) as world:
        outcome = world.run(dist.barrier)
    dom = opened(tmp_path, run_as_html(picture_of(outcome, "a run", "")))
    assert 'class="verdict good"' in dom
    assert "2 ranks returned" in text_of(dom)
    assert "culprit" not in re.sub(r"<(script|style).*?</\1>", "", dom, flags=re.DOTALL)


@in_a_browser
@pytest.mark.parametrize(("size", "most"), [pytest.param(4, 10, marks=pytest.mark.nightly), (1024, 40)])
def test_ranks_of_one_state_fold(tmp_path: Path, size: int, most: int) -> None:
    page = run_as_html(picture(lanes(size, 2), 2))
    folded = opened(tmp_path, page)
    assert folded.count('<text x="0"') == 2, "the culprit, and all others in one line"
    assert folded.count("<rect") < most
    unfolded = opened(tmp_path, page, doing='document.querySelector("text.fold").dispatchEvent(new Event("click"))')
    assert unfolded.count('<text x="14"') == min(size - 1, 64)


@pytest.mark.nightly
@in_a_browser
def test_one_can_look_closer(tmp_path: Path) -> None:
    page = run_as_html(picture(lanes(2, 1, calls=4000), 1, calls=4000))
    far = opened(tmp_path, page)
    assert far.count("<rect") < 6000
    near = opened(tmp_path, page, "#from=10000&to=14000")
    assert 3 <= near.count("<rect") <= 12
    assert "11 ms" in text_of(near)
    end = opened(
        tmp_path, page, doing='[...document.querySelectorAll("button")].find((b) => b.textContent === "end").click()'
    )
    assert end.count("<rect") < far.count("<rect")


@in_a_browser
def test_a_bar_opens_its_step(tmp_path: Path) -> None:
    click = 'document.querySelector("rect.open").dispatchEvent(new Event("click"))'
    shown = text_of(opened(tmp_path, run_as_html(picture(lanes(2, 1), 1)), doing=click))
    assert "rank 0: collective.all_reduce #4 on 'default', at train.py:41 in step; after 4 ms, never came out" in shown


@in_a_browser
def test_what_struck_is_marked_and_recorded_html_is_text(tmp_path: Path) -> None:
    struck = Lane(0, "returned", HOSTILE, "", (), (record(0, fault=0, shown=HOSTILE[:60]),))
    told = Picture(HOSTILE, False, HOSTILE, (struck,), stacks=(Stack((0,), HOSTILE),), repeat=HOSTILE)
    dom = opened(tmp_path, run_as_html(told))
    assert 'class="bar collective struck"' in dom
    assert "<img" not in dom
    assert "<title>run</title>" not in dom
    assert "<img src=x onerror=alert(1)>" in text_of(dom)


@in_a_browser
def test_there_is_a_page_of_nothing(tmp_path: Path) -> None:
    nothing = Picture("a run", False, "rank 0 died before its first step", (Lane(0, "died", "died", "culprit"),))
    assert "rank 0 died before its first step" in text_of(opened(tmp_path, run_as_html(nothing)))
