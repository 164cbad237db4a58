"""Files become steps, and the files themselves do not notice."""

from __future__ import annotations

import builtins
import fcntl
import inspect
import io
import json
import os
import pathlib
import pickle
import shutil
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.boundary import Boundary
from rankdrill.boundary.files import FD_FUNCTIONS, PAIR_FUNCTIONS, PATH_FUNCTIONS
from rankdrill.boundary.opened import is_plain
from rankdrill.boundary.territory import Territory
from rankdrill.step import Kind
from tests.faults.here import rank_here


def test_each_call_is_one_step(tmp_path: Path) -> None:
    with rank_here() as here:
        os.mkdir(tmp_path / "d")
        os.listdir(tmp_path)
        os.scandir(tmp_path).close()
        fd = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.write(fd, b"0123")
        os.fsync(fd)
        os.ftruncate(fd, 2)
        os.posix_fallocate(fd, 0, 8)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.lseek(fd, 0, os.SEEK_SET)
        assert os.read(fd, 2) == b"01"
        os.close(fd)
        os.link(tmp_path / "a", tmp_path / "b")
        os.rename(tmp_path / "a", tmp_path / "c")
        os.replace(tmp_path / "c", tmp_path / "b")
        os.stat(tmp_path / "b")
        os.lstat(tmp_path / "b")
        os.remove(tmp_path / "b")
        os.rmdir(tmp_path / "d")
        assert " ".join(here.steps).replace("file.", "") == (
            "mkdir listdir scandir open write fsync ftruncate posix_fallocate flock read link rename replace "
            "stat lstat unlink rmdir"
        )
        records = list(here.view)
    # Of a path too long for the ledger the end is kept.
    assert str(tmp_path / "a").endswith(records[3].step.target.removeprefix("…"))
    assert records[3].step.fingerprint == "O_RDWR|O_CREAT|O_EXCL"
    assert records[4].step.nbytes == 4
    assert records[4].step.target == records[3].step.target, "a descriptor's path is known"
    assert records[11].step.fingerprint == "to c"


def test_file_objects_are_those_of_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for mode in ("w", "wb", "r", "rb", "a", "ab", "r+", "rb+", "w+", "w+b", "x", "xb"):
        if "x" in mode:
            path.unlink()
        with open(path, mode) as plain:
            kind, name, shown = type(plain), plain.name, plain.mode
        if "x" in mode:
            path.unlink()
        with rank_here() as here, open(path, mode) as file:
            assert (type(file), file.name, file.mode) == (kind, name, shown)
            assert here.steps == ["file.open"]
        assert file.closed
    with rank_here(), open(path, "rb", buffering=0) as raw:
        assert isinstance(raw, io.FileIO)


@given(
    st.text("rwxabt+U", max_size=4),
    st.sampled_from([-1, 0, 1, 7, 5000]),
    st.sampled_from([None, "utf-8", "ascii", "nonsense"]),
    st.sampled_from([None, "", "\n", "?"]),
)
def test_opening_fails_as_open_does(mode: str, buffering: int, encoding: str | None, newline: str | None) -> None:
    def attempt() -> str:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "a")
            path.write_text("there")
            try:
                with open(path, mode, buffering, encoding, newline=newline) as file:
                    return f"{type(file).__name__} {file.mode} {path.read_bytes()!r}"
            except (ValueError, OSError, LookupError, RuntimeWarning) as error:
                return f"{type(error).__name__} {error}".replace(directory, "")

    plain = attempt()
    with rank_here():
        assert attempt().replace("DrilledFileIO", "FileIO") == plain


@given(st.lists(st.binary(max_size=30_000), max_size=5), st.sampled_from([-1, 0, 2, 100, 70_000]))
def test_what_is_written_is_read(pieces: list[bytes], buffering: int) -> None:
    with tempfile.TemporaryDirectory() as directory, rank_here() as here:
        path = Path(directory, "a")
        with open(path, "wb", buffering) as file:
            for piece in pieces:
                file.write(piece)
        with open(path, "rb", buffering) as file:
            assert file.read() == b"".join(pieces)
        with open(path, "r+b", buffering) as file:
            assert b"".join(iter(lambda: file.read(999), b"")) == b"".join(pieces)
        assert set(here.steps) <= {"file.open", "file.write", "file.read"}


def test_text_is_text(tmp_path: Path) -> None:
    with rank_here() as here:
        with open(tmp_path / "a", "w", encoding="utf-16", newline="\r\n") as file:
            print("grüße", 1, sep="\n", file=file)
        with open(tmp_path / "a", encoding="utf-16") as file:
            assert list(file) == ["grüße\n", "1\n"]
        with open(tmp_path / "b", "w") as file:
            json.dump({"a": [1]}, file)
        assert here.steps.count("file.write") == 2


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_file_that_nobody_closes_is_written(tmp_path: Path) -> None:
    with rank_here():
        open(tmp_path / "a", "w").write("kept")  # noqa: SIM115 (that is the point)
    assert (tmp_path / "a").read_text() == "kept"


def test_libraries_write_and_read_as_ever(tmp_path: Path) -> None:
    value = {"weights": torch.arange(5000), "step": 3}
    with rank_here() as here:
        torch.save(value, tmp_path / "a.pt")
        assert (torch.load(tmp_path / "a.pt")["weights"] == value["weights"]).all()
        assert (torch.load(tmp_path / "a.pt", mmap=True)["weights"] == value["weights"]).all()
        numpy.save(tmp_path / "a.npy", numpy.arange(9))
        assert numpy.load(tmp_path / "a.npy").sum() == 36
        numpy.arange(9).tofile(tmp_path / "raw")
        with open(tmp_path / "a.pkl", "wb") as file:
            pickle.dump(list(range(99_999)), file)
        with open(tmp_path / "a.pkl", "rb") as file:
            assert pickle.load(file)[-1] == 99_998
        with tempfile.NamedTemporaryFile(dir=tmp_path) as named:
            named.write(b"x")
            named.flush()
            assert Path(named.name).read_bytes() == b"x"
        pathlib.Path(tmp_path, "deep", "er").mkdir(parents=True)
        shutil.copytree(tmp_path / "deep", tmp_path / "copy")
        shutil.rmtree(tmp_path / "deep")
        steps = here.steps
    for wanted in (["file.open", "object.save", "file.write"], ["file.open", "object.dump", "file.write"]):
        assert any(steps[i : i + 3] == wanted for i in range(len(steps))), "writes after the pickling are steps"
    assert not (tmp_path / "deep").exists()


def test_a_failed_call_is_on_record(tmp_path: Path) -> None:
    with rank_here() as here:
        with pytest.raises(FileNotFoundError):
            open(tmp_path / "absent")  # noqa: SIM115 (it does not open)
        assert [record.error for record in here.view] == ["FileNotFoundError"]


def test_relative_paths_and_directory_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fd = os.open(tmp_path, os.O_RDONLY)
    with rank_here() as here:
        os.mkdir("a")
        os.mkdir(b"b")
        os.mkdir("c", dir_fd=fd)
        os.rename("c", "d", src_dir_fd=fd, dst_dir_fd=fd)
        records = list(here.view)
    os.close(fd)
    assert [record.step.target[-2:] for record in records] == ["/a", "/b", "/c", "/c"]
    for record in records:
        assert str(tmp_path).endswith(os.path.dirname(record.step.target).removeprefix("…"))
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "d"]


def test_descriptors_of_other_things_are_no_steps(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with rank_here() as here:
        os.write(write_end, b"x")
        assert os.read(read_end, 1) == b"x"
        assert os.stat(read_end).st_size == 0
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.read(10**6, 1)
        with pytest.raises(TypeError):
            os.stat(None)  # type: ignore[arg-type]
        assert here.steps == []
    os.close(read_end)
    os.close(write_end)


def test_files_of_nobodys_business_are_no_steps(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with rank_here(ignored=(str(own),)) as here:
        (own / "a").write_text("the world's own")
        Path("/proc/self/status").read_text()
        Path(threading.__file__).read_text()
        Path(torch.__file__).exists()
        (tmp_path / "module.py").write_text("source")
        assert here.steps == []
        (tmp_path / "owner").write_text("not below `own`")
        assert here.steps == ["file.open", "file.write"]


def test_resolving_a_path_is_no_step(tmp_path: Path) -> None:
    with rank_here() as here:
        assert (tmp_path / "a" / ".." / "b").resolve() == tmp_path / "b"
        assert os.path.realpath(tmp_path) == str(tmp_path)
        assert "file.lstat" not in here.steps


def test_territory() -> None:
    territory = Territory(["/world/run"])
    purelib = sysconfig.get_path("purelib")
    assert territory.kind("/dev/shm/x") is Kind.SHM
    assert territory.kind("/data/x") is Kind.FILE
    assert territory.kind("/world/runs") is Kind.FILE
    assert territory.kind("/world") is Kind.FILE, "a world's directory may lie where the drilled code works"
    assert territory.kind(os.path.dirname(purelib)) is None
    for path in ("/world/run/x", "/dev/null", "/proc/1", f"{purelib}/x", "/data/x.py", "/data/__pycache__/x.y"):
        assert territory.kind(path) is None, path


def test_taking_it_away_restores_everything(tmp_path: Path) -> None:
    def everything() -> list[object]:
        names = (*PATH_FUNCTIONS, *PAIR_FUNCTIONS, *FD_FUNCTIONS, "open", "supports_fd", "supports_dir_fd")
        return [builtins.open, io.open, fcntl.flock, *(getattr(os, name) for name in names)]

    before = everything()
    with rank_here():
        assert builtins.open is io.open
        assert builtins.open is not before[0]
        assert os.unlink in os.supports_dir_fd
        for name in (*PATH_FUNCTIONS, *PAIR_FUNCTIONS, *FD_FUNCTIONS):
            assert inspect.signature(getattr(os, name)) is not None
        assert inspect.signature(open) == inspect.signature(before[0])  # type: ignore[arg-type]
    assert all(one is other for one, other in zip(before, everything(), strict=True))


def test_nothing_is_a_step_while_nothing_is_recorded(tmp_path: Path) -> None:
    with rank_here() as here:
        with here.boundary.closed():
            (tmp_path / "a").write_text("x")
            torch.save([1], tmp_path / "b")
        assert here.steps == []


def test_a_file_that_outlives_the_recording_goes_on(tmp_path: Path) -> None:
    with rank_here():
        file = open(tmp_path / "a", "w")  # noqa: SIM115 (it outlives the recording)
        file.write("first")
    file.write(" second")
    file.close()
    assert (tmp_path / "a").read_text() == "first second"


def test_calls_while_nothing_is_recorded_cost_next_to_nothing(tmp_path: Path) -> None:
    def seconds() -> float:
        began = time.thread_time()  # of this thread alone: others may have the processor meanwhile
        for _ in range(2000):
            os.stat(tmp_path)
        return time.thread_time() - began

    plain = min(seconds() for _ in range(5))
    with rank_here() as here, here.boundary.closed():
        patched = min(seconds() for _ in range(5))
    assert patched < plain * 4 + 0.01


def test_plain_means_what_open_takes() -> None:
    for mode in ("r", "w", "a", "x", "rb", "r+b", "+br", "rt"):
        assert is_plain(mode, -1, None, None, None)
    for odd in ("", "z", "rw", "rr", "bt", "b", "rbt", "U", 3):
        assert not is_plain(odd, -1, None, None, None)
    assert not is_plain("rb", -1, "utf-8", None, None)
    assert not is_plain("r", 0, None, None, None)
    assert sys.getdefaultencoding()


def test_two_boundaries_one_after_the_other(tmp_path: Path) -> None:
    for _ in range(2):
        with rank_here() as here:
            os.mkdir(tmp_path / "a")
            os.rmdir(tmp_path / "a")
            assert here.steps == ["file.mkdir", "file.rmdir"]
    assert not Boundary().open
