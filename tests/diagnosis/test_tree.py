"""A file's source as a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankdrill.diagnosis.calls.tree import function_around, holds_several, is_called_once, tree_of
from rankdrill.step import Site


def test_a_source_that_could_not_be_read_is_read_when_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    site = Site(str(path), 2, "step")
    assert tree_of(str(path)) is None
    assert function_around(site) is None
    path.write_text("def step():\n    return 1\n")
    assert function_around(site) is not None
    assert tree_of(str(path)) is tree_of(str(path)), "it is read once"


def test_what_is_no_python_has_none(tmp_path: Path) -> None:
    path = tmp_path / "notes.py"
    path.write_text("to do:\n")
    assert tree_of(str(path)) is None


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("reduce(a)", 1),
        ("reduce(a); reduce(b)", 2),
        ("reduce(a) if here else reduce(b)", 1),
        ("reduce(a) if here else None", 1),
        ("reduce(a) if reduce(c) else reduce(b)", 2),
        ("reduce(a) if one else (reduce(b) if two else gather(c))", 1),
        ("[reduce(a), reduce(b)] if here else reduce(c)", 2),
        ("wait(reduce(a) if here else reduce(b))", 0),  # of the outermost calls
        ("gather(a)", 0),
    ],
)
def test_how_often_a_run_of_a_line_makes_a_call(tmp_path: Path, line: str, times: int) -> None:
    """Of two arms of one expression a run goes through one."""
    path = tmp_path / "train.py"
    path.write_text(f"reduce(0)\ndef step():\n    {line}\nreduce(0)\n")
    site = Site(str(path), 3, "step")
    assert (is_called_once(site, "reduce"), holds_several(site, "reduce")) == (times == 1, times > 1)
