"""A file's source as a tree."""

from __future__ import annotations

from pathlib import Path

from rankdrill.diagnosis.calls.tree import function_around, tree_of
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
