"""The screens of a drill: readable without colour, at any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rankdrill.conformance.case import Case, CaseResult, Judgement
from rankdrill.report import Tally, print_failures, print_matrix
from rankdrill.report.matrix import LEGEND
from tests.report.samples import PASSED, RESULTS


def screen(width: int, *, colour: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=colour, no_color=not colour, highlight=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_cell_says_the_worst_that_happened_and_how_often() -> None:
    console = screen(100)
    print_matrix(Tally(RESULTS), console)
    text = text_of(console)
    assert [line.split() for line in text.splitlines() if line.startswith(("nothing", "oom", "kill"))] == [
        ["nothing", "ok", "1", "·"],
        ["oom", "raised", "1", "·"],
        ["kill", "·", "HANG", "2"],
    ]
    assert "ranks waited for ever" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [40, 80, 100, 120])
def test_nothing_is_cut_or_wider_than_the_terminal(width: int) -> None:
    console = screen(width)
    paths = ["all_gather", "get_configs_parallel/files", "NFSWorkspace", "torch.all_gather_object", "a", "b", "c", "d"]
    results = [CaseResult(Case(path, 2, "small"), Judgement.RIGHT, "") for path in paths for _ in range(123)]
    print_matrix(Tally(results), console)
    table = text_of(console).split("every rank")[0]
    assert max(map(len, table.splitlines())) <= width
    assert "…" not in table
    assert text_of(console).count("ok    123") >= len(paths)


def test_every_judgement_is_explained() -> None:
    assert set(LEGEND) == set(Judgement)


def test_failures_come_in_full_with_the_command_that_repeats_each() -> None:
    console = screen(100)
    print_failures(Tally(RESULTS), console)
    text = text_of(console)
    assert "1. HANG  get_configs_parallel/files" in text
    assert "2. " not in text  # the same failure elsewhere is one line
    assert "rankdrill drill --path get_configs_parallel/files --ranks 4 --fault 'rank 2: kill' --payload 8mib" in text
    assert "rankdrill drill --path get_configs_parallel/files --ranks 5 --fault 'rank 0: kill' --payload small" in text
    assert "File 'broken.py', line 3" in text


def test_a_drill_without_failures_prints_none() -> None:
    console = screen(100)
    print_failures(Tally([PASSED]), console)
    assert text_of(console) == ""


def test_markup_in_what_ranks_say_is_shown_as_it_is() -> None:
    console = screen(100)
    print_failures(Tally([CaseResult(Case("[bold]x", 2, "small"), Judgement.WRONG, "result[0] is [red]")]), console)
    assert "[bold]x" in text_of(console)
    assert "result[0] is [red]" in text_of(console)
