"""Functions with long names, as tests have: their names are read in the source, and what goes by them is found."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.ledger.whole_names import whole_name

LONG = "what_a_test_is_called_by_somebody_who_tells_all_of_what_happens_in_it"
SOURCE = f"""\
def {LONG}():
    def {LONG}_too():
        return 3

    return 5


def é{LONG}():
    return 9
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(
    ("line", "cut", "whole"),
    [
        (5, f"{LONG[:45]}…", LONG),
        (3, f"{LONG[:45]}…", f"{LONG}_too"),
        (9, f"é{LONG[:30]}…", f"é{LONG}"),
        (9, "\ufffd…", "\ufffd…"),
        (5, "another…", "another…"),
        (6, f"{LONG[:45]}…", f"{LONG[:45]}…"),
        (5, "short", "short"),
    ],
)
def test_it_is_the_innermost_function_of_that_beginning(file: str, line: int, cut: str, whole: str) -> None:
    assert whole_name(file, line, cut) == whole


def test_without_its_source_a_name_stays_as_it_is(tmp_path: Path) -> None:
    assert whole_name(str(tmp_path / "gone.py"), 5, "beginning…") == "beginning…"
    (tmp_path / "broken.py").write_text("def (")
    assert whole_name(str(tmp_path / "broken.py"), 1, "beginning…") == "beginning…"


def a_record_that_cannot_be_read_is_logged_and_its_step_is_left_out() -> None:
    for step in range(4):
        if dist.get_rank() == 1 and step == 2:
            continue
        dist.all_reduce(torch.ones(1))
    dist.barrier()


def test_a_call_left_out_is_one_in_a_function_of_a_long_name_too() -> None:
    with World(3) as world:
        outcome = world.run(a_record_that_cannot_be_read_is_logged_and_its_step_is_left_out, deadline=30)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (1,))
    assert "in a_record_that_cannot_be_read_is_logged_and_its_step_is_left_out" in str(finding)
