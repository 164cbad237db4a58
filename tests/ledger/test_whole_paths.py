"""Files with long paths, as checkouts and work spaces of CI have: found again, so that what goes by them is found."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rankdrill.ledger.whole_paths import look_below, whole_path

_numbers = itertools.count()


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A directory with a path longer than any record has room for, and with no other of its name."""
    found = tmp_path.joinpath(*(f"a_directory_that_has_a_long_name_{next(_numbers)}" for _ in range(8)))
    found.mkdir(parents=True)
    return found


@pytest.fixture
def module(deep: Path) -> Iterator[Path]:
    """The file of a module that is here."""
    name = "a_module_of_a_long_path"
    made = ModuleType(name)
    made.__file__ = str(deep / f"{name}.py")
    sys.modules[name] = made
    yield Path(made.__file__)
    del sys.modules[name]


def cut(path: Path, size: int = 100) -> str:
    return f"…{str(path)[-size:]}"


def test_a_path_that_is_whole_stays_as_it_is(deep: Path) -> None:
    assert whole_path(str(deep / "train.py")) == str(deep / "train.py")
    assert whole_path("") == ""


@pytest.mark.parametrize("size", [30, 100, 160])
def test_a_module_is_found_by_the_end_of_its_path(module: Path, size: int) -> None:
    assert whole_path(cut(module, size)) == str(module)


def test_a_letter_may_be_cut_in_two(module: Path) -> None:
    assert whole_path(f"…\ufffd{str(module)[-90:]}") == str(module)


@pytest.mark.parametrize("up", [0, 1, 2])
def test_a_file_below_the_working_directory_is_found(deep: Path, monkeypatch: pytest.MonkeyPatch, up: int) -> None:
    file = deep / "train.py"
    file.touch()
    assert whole_path(cut(file)) == cut(file), "not from here"
    monkeypatch.chdir([deep, *deep.parents][up])
    assert whole_path(cut(file)) == str(file)


def test_so_is_one_below_where_it_is_said_to_be(deep: Path) -> None:
    file = deep / "job.py"
    file.touch()
    assert whole_path(cut(file)) == cut(file)
    look_below(str(deep))
    assert whole_path(cut(file)) == str(file)


def test_of_two_that_end_alike_neither_is_taken(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "elsewhere" / module.relative_to(tmp_path)
    other.parent.mkdir(parents=True)
    other.touch()
    monkeypatch.chdir(other.parent)
    assert whole_path(cut(module)) == cut(module)
