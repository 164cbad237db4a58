"""Directories that gathers make, where others make them too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankdrill.gathers.storage.directories import make_private


def test_one_that_another_rank_has_just_made_need_not_be_shown_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    make_private(str(tmp_path))


def test_a_file_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private(str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError):
        make_private(str(tmp_path / "file" / "below"))
