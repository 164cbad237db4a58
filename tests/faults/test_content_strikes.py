"""Strikes at what files hold: torn, of an older generation, left over; and at when they are seen."""

from __future__ import annotations

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from rankdrill.faults import content
from rankdrill.faults.content import LEFT_OVER
from tests.faults.here import rank_here

LATE_S = 0.3
PATIENCE_S = 20.0


@pytest.mark.parametrize("op", ["rename", "replace", "link"])
def test_torn_after_it_has_its_name(op: str, tmp_path: Path) -> None:
    with rank_here(f'rank 0: torn after file.{op} on "*.part"') as here:
        (tmp_path / "a.part").write_bytes(b"0123456789")
        getattr(os, op)(tmp_path / "a.part", tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == b"01234"
        assert here.fired == (1,)


def test_torn_after_writing(tmp_path: Path) -> None:
    with rank_here("rank 0: torn after file.write"):
        (tmp_path / "a").write_bytes(b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"01234"


def test_torn_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"0123456789")
    with rank_here("rank 0: torn before file.open") as here:
        assert (tmp_path / "empty").read_bytes() == b""
        assert (tmp_path / "a").read_bytes() == b"01234"
        assert here.fired == (1,)


def test_torn_shared_memory() -> None:
    name = f"rankdrill-test-{secrets.token_hex(8)}"
    made = SharedMemory(name, create=True, size=8192)
    with rank_here("rank 0: torn before shm.attach"):
        seen = SharedMemory(name)
    assert seen.size == 4096
    seen.close()
    made.close()
    made.unlink()


def test_stale_is_what_this_rank_saw_last(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with rank_here("rank 0: stale at file.open #2") as here:
        path.write_bytes(b"first")
        assert path.read_bytes() == b"first"
        path.write_bytes(b"second")
        assert path.read_bytes() == b"first"
        assert path.read_bytes() == b"second"
        assert here.fired == (1,)


def test_stale_is_empty_where_this_rank_never_looked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"of another rank")
    with rank_here("rank 0: stale at file.open #1"):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        assert os.read(fd, 99) == b""
        os.close(fd)
    assert path.read_bytes() == b"of another rank"


def test_stale_after_a_rename_is_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").write_bytes(b"new")
    with rank_here("rank 0: stale after file.replace every") as here:
        os.replace(tmp_path / "b", tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == b"old"
        assert not (tmp_path / "b").exists()
        os.replace(tmp_path / "a", tmp_path / "c")
        assert not (tmp_path / "c").exists()
        assert here.fired == (2,)
    assert not list(tmp_path.iterdir())


def test_what_is_too_large_to_remember_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_REMEMBERED", 5)
    (tmp_path / "a").write_bytes(b"old and long")
    (tmp_path / "b").write_bytes(b"new")
    with rank_here("rank 0: stale after file.replace\nrank 0: stale at file.open #3") as here:
        os.replace(tmp_path / "b", tmp_path / "a")
        (tmp_path / "c").write_bytes(b"long")
        assert [(tmp_path / name).read_bytes() for name in "ac"] == [b"new", b"long"]
        assert (tmp_path / "a").read_bytes() == b"", "forgotten for the younger one"
        assert here.fired == (0, 1)


def test_collisions_with_what_a_crashed_run_left(tmp_path: Path) -> None:
    with rank_here("rank 0: collision before file.mkdir"):
        with pytest.raises(FileExistsError):
            os.mkdir(tmp_path / "d")
        os.makedirs(tmp_path / "d", exist_ok=True)
    with rank_here("rank 0: collision before file.open"):
        (tmp_path / "truncated").write_bytes(b"no matter what was there")
        with pytest.raises(FileExistsError):
            os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        assert (tmp_path / "x").read_bytes() == LEFT_OVER
    with rank_here("rank 0: collision before file.link"), pytest.raises(FileExistsError):
        os.link(tmp_path / "x", tmp_path / "y")


def test_collision_of_segments() -> None:
    name = f"rankdrill-test-{secrets.token_hex(8)}"
    with rank_here("rank 0: collision before shm.create") as here:
        with pytest.raises(FileExistsError):
            SharedMemory(name, create=True, size=100)
        assert here.fired == (1,)
    assert Path("/dev/shm", name).read_bytes() == LEFT_OVER
    Path("/dev/shm", name).unlink()


def test_late_is_not_seen_and_then_is(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"there")
    other = tmp_path / "b"
    other.write_bytes(b"there")
    with rank_here(f'rank 0: late({LATE_S}) at file.open on "a"') as here:
        since = time.monotonic()
        with pytest.raises(FileNotFoundError):
            path.read_bytes()
        assert not path.exists()
        assert os.listdir(tmp_path) == ["b"]
        with os.scandir(tmp_path) as entries:
            assert [entry.name for entry in entries] == ["b"]
        assert other.read_bytes() == b"there"
        if time.monotonic() - since > LATE_S:
            pytest.skip("this machine is too busy to look in time")
        assert _appears(path)
        assert time.monotonic() - since >= LATE_S
        assert path.read_bytes() == b"there"
        assert sorted(os.listdir(tmp_path)) == ["a", "b"]
        assert here.fired == (1,)


def test_a_late_rename_takes_effect_for_everybody(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"there")
    with rank_here(f"rank 0: late({LATE_S}) at file.rename") as here:
        since = time.monotonic()
        os.rename(tmp_path / "a", tmp_path / "b")
        with here.boundary.closed():  # another rank's eyes
            late = not (tmp_path / "b").exists()
            assert late or time.monotonic() - since > LATE_S
            assert _appears(tmp_path / "b")
        assert here.steps.count("file.rename") == 1
    assert time.monotonic() - since >= LATE_S
    assert not (tmp_path / "a").exists()


def test_torn_takes_half_of_two_bytes_and_all_of_one(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"22")
    with rank_here("rank 0: torn before file.open every") as here:
        assert [(tmp_path / name).read_bytes() for name in ("one", "two", "one")] == [b"", b"2", b""]
        assert here.fired == (2,), "what is empty is not torn"


def test_stale_at_a_file_that_was_too_large_to_remember_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "MAX_REMEMBERED", 5)
    path = tmp_path / "a"
    with rank_here("rank 0: stale at file.open #3"):
        path.write_bytes(b"too large")
        assert path.read_bytes() == b"too large"
        assert path.read_bytes() == b"too large"
        assert path.read_bytes() == b""


def test_what_just_fits_is_remembered_and_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_REMEMBERED", 5)
    (tmp_path / "a").write_bytes(b"old 5")
    (tmp_path / "b").write_bytes(b"new")
    with rank_here("rank 0: stale at file.open #2\nrank 0: stale after file.replace") as here:
        assert (tmp_path / "a").read_bytes() == b"old 5"
        assert (tmp_path / "a").read_bytes() == b"old 5"
        with here.boundary.closed():
            (tmp_path / "a").write_bytes(b"older")
        os.replace(tmp_path / "b", tmp_path / "a")
        assert here.fired == (1, 1)
    assert (tmp_path / "a").read_bytes() == b"older"


def test_what_was_seen_longest_ago_is_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_REMEMBERED", 5)
    for name in "abc":
        (tmp_path / name).write_bytes(b"12")
    with rank_here("rank 0: stale at file.open #5") as here:
        for name in "abac":
            assert (tmp_path / name).read_bytes() == b"12"
        with here.boundary.closed():
            (tmp_path / "a").write_bytes(b"new")
        assert (tmp_path / "a").read_bytes() == b"12", "b was seen longer ago"


def test_a_stale_file_is_private_and_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"there")
    with rank_here("rank 0: stale at file.open"), (tmp_path / "a").open("rb") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
        assert "memfd:rankdrill-stale" in os.readlink(f"/proc/self/fd/{file.fileno()}")


def test_a_directory_is_never_stale(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "other").mkdir()
    with rank_here("rank 0: stale after file.replace") as here:
        os.replace(tmp_path / "d", tmp_path / "e")
        os.replace(tmp_path / "e", tmp_path / "other")
        assert here.fired == (0,)
    assert os.listdir(tmp_path) == ["other"]
    (tmp_path / "file").touch()
    with rank_here("rank 0: stale after file.replace") as here:
        with pytest.raises(IsADirectoryError):
            os.replace(tmp_path / "file", tmp_path / "other")
        assert here.fired == (0,)


def test_nothing_collides_with_what_is_there_or_cannot_be(tmp_path: Path) -> None:
    with rank_here("rank 0: collision before file.mkdir") as here:
        with pytest.raises(FileExistsError):
            os.mkdir(tmp_path)
        with pytest.raises(FileNotFoundError):
            os.mkdir(tmp_path / "none" / "d")
        assert here.fired == (0,)
    assert not list(tmp_path.iterdir())


def test_what_a_crashed_run_left_is_private_to_its_user(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with rank_here("rank 0: collision before file.mkdir\nrank 0: collision before file.open"):
            with pytest.raises(FileExistsError):
                os.mkdir(tmp_path / "d")
            with pytest.raises(FileExistsError):
                (tmp_path / "f").open("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


def test_what_is_late_can_be_written_and_removed_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"there")
    with rank_here("rank 0: late(3600) at file.stat") as here:
        assert not path.exists()
        with pytest.raises(FileNotFoundError):
            path.read_bytes()
        path.write_bytes(b"anew")
        os.truncate(path, 1)
        with pytest.raises(FileNotFoundError):
            os.lstat(path)
        os.unlink(path)
        assert here.fired == (1,)
    assert not path.exists()


@pytest.mark.parametrize(
    ("strike", "at_last"),
    [
        ("late(3600) at file.stat", lambda path: path.exists()),
        ("late(0) at file.rename", lambda path: os.rename(path, path.with_name("b"))),
        ("stale after file.rename", lambda path: os.rename(path, path.with_name("b"))),
        ("stale at file.open", lambda path: path.read_bytes()),
        ("torn after file.rename", lambda path: os.rename(path, path.with_name("b"))),
    ],
)
def test_what_is_struck_or_passed_goes_on_to_the_next_fault(
    strike: str, at_last: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"there")
    with rank_here(f"rank 0: {strike}\nrank 0: delay(0) before file.*\nrank 0: denied at file.listdir #2") as here:
        assert os.listdir(tmp_path) == ["a"]
        assert at_last(path) is not NotImplemented
        _late_ones_are_over()
        with pytest.raises(PermissionError):
            os.listdir(tmp_path)
        assert here.fired == (1, 1, 1)


def test_a_late_rename_of_what_is_gone_by_then_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"there")
    with rank_here(f"rank 0: late({3 * LATE_S}) at file.rename"):
        os.rename(path, tmp_path / "b")
        path.unlink()
        assert _late_ones_are_over() == 1
    assert not list(tmp_path.iterdir())


def _late_ones_are_over() -> int:
    """Wait for them; returns how many there were."""
    late = [thread for thread in threading.enumerate() if thread.name == "rankdrill-late"]
    for thread in late:
        assert thread.daemon, "a rank need not wait for it"
        thread.join(PATIENCE_S)
    return len(late)


def _appears(path: Path) -> bool:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if path.exists():
            return True
        time.sleep(0.01)
    return False
