"""The directory of all runs of a user: where its usual place was taken by somebody, another is found."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import pytest

from rankdrill.errors import UsageError
from rankdrill.worlds.home import home, objection_to, usual_home
from rankdrill.worlds.private import PrivateDirectory
from tests.worlds.taken import TAKEN, some, take


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of this test alone; returns the usual home in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"rankdrill-{os.getuid()}"


def test_the_usual_one_is_made_and_found_again(place: Path) -> None:
    assert home() == home() == usual_home() == place
    assert not objection_to(place)


@some()
def test_another_takes_the_place_of_one_that_is_not_fit(place: Path, how: str) -> None:
    take(place, how)
    before = place.lstat()
    with pytest.warns(UserWarning, match=rf"{place} {TAKEN[how]}: ranks keep their files in") as told:
        instead = home()
    assert str(instead) in str(told[0].message)
    assert not objection_to(instead)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert home() == instead, "later runs find it, to sweep it, and it is told once"
        directory = PrivateDirectory()
    assert directory.path.parent == instead
    directory.remove()
    after = place.lstat()
    assert (after.st_mode, after.st_uid, after.st_ino) == (before.st_mode, before.st_uid, before.st_ino)
    assert not place.is_dir() or list(place.iterdir()) == [], "nothing was put there"


@some()
def test_what_was_put_in_the_way_of_the_other_one_is_passed_over(place: Path, how: str) -> None:
    take(place, "file")
    planted = place.with_name(f"{place.name}-instead-00000000")
    take(planted, how)
    with pytest.warns(UserWarning, match="is no directory"):
        instead = home()
    assert instead != planted
    assert not objection_to(instead)


def test_where_nothing_can_be_made_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot make .*; set TMPDIR to a directory you can write to"):
        home()


def test_where_no_other_can_be_made_both_reasons_are_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    take(place, "open")
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(UsageError, match=r"\(mode 777\), and no other can be made beside it: No space left .*TMPDIR"):
        home()
