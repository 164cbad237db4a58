"""Files that an option asks for: refused at the start, and never found half written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankdrill.errors import UsageError
from rankdrill.outputs import check_output, write_whole


def test_a_file_is_there_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old, and longer than what comes")
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_older_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "out.json"
    link.symlink_to(tmp_path / "there" / "real.json")
    write_whole(link, "one")
    write_whole(link, "two")
    assert link.is_symlink()
    assert (tmp_path / "there" / "real.json").read_text() == "two"


def test_a_pipe_or_what_stands_for_standard_output_is_written_to(tmp_path: Path) -> None:
    source = "from pathlib import Path\nfrom rankdrill.outputs import check_output, write_whole\n"
    source += "write_whole(check_output('--json', '/dev/stdout'), 'text')"
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, check=True).stdout == b"text"
    with open(tmp_path / "kept", "wb") as kept:
        subprocess.run([sys.executable, "-c", source], stdout=kept, check=True)
        assert os.fstat(kept.fileno()).st_nlink == 1, "somebody else's open file was replaced"


def test_what_utf8_does_not_have_is_escaped_as_json_does(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    write_whole(tmp_path / "out.json", json.dumps([name, "é"], ensure_ascii=False))
    assert json.loads((tmp_path / "out.json").read_text("utf-8")) == [name, "é"]


def test_a_path_is_that_of_the_current_directory_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_output("--json", "out.json") == tmp_path / "out.json"


def test_what_cannot_be_written_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("")
    with pytest.raises(UsageError, match=r"^--json \S+: is a directory; give a file$"):
        check_output("--json", str(tmp_path))
    with pytest.raises(UsageError, match=r"^--json \S+: there is no directory \S+/none; make it first$"):
        check_output("--json", str(tmp_path / "none" / "out.json"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != kept)  # a superuser may write anything
    with pytest.raises(UsageError, match=r"^--json \S+: cannot be written; give a file in a directory of yours$"):
        check_output("--json", str(kept))
    assert check_output("--json", str(tmp_path / "new.json"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        check_output("--json", str(tmp_path / "new.json"))
