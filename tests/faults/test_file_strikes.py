"""Strikes that make calls on files and shared memory fail, as they fail in the real world."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from array import array
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest
import torch

from tests.faults.here import rank_here

SEGMENT_BYTES = 4096


@pytest.fixture
def segment() -> Iterator[str]:
    """The name of a segment that is removed afterwards, whatever is left of it."""
    name = f"rankdrill-test-{secrets.token_hex(8)}"
    yield name
    Path("/dev/shm", name).unlink(missing_ok=True)


# What a rank may do with the files `old` (there) and `new` (not there), by step.
ACTIONS: dict[str, Callable[[Path], object]] = {
    "open": lambda d: (d / "old").open().close(),
    "read": lambda d: (d / "old").read_bytes(),
    "write": lambda d: (d / "new").write_bytes(b"0123456789"),
    "rename": lambda d: os.rename(d / "old", d / "new"),
    "replace": lambda d: os.replace(d / "old", d / "new"),
    "link": lambda d: os.link(d / "old", d / "new"),
    "unlink": lambda d: os.remove(d / "old"),
    "mkdir": lambda d: os.makedirs(d / "new"),
    "rmdir": lambda d: os.rmdir(d / "empty"),
    "listdir": lambda d: os.listdir(d),
    "scandir": lambda d: os.scandir(d).close(),
    "stat": lambda d: os.stat(d / "old"),
    "lstat": lambda d: os.lstat(d / "old"),
}


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "old").write_bytes(b"0123456789")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("strike", "number", "ops"),
    [
        ("io_error", errno.EIO, ACTIONS),
        ("denied", errno.EACCES, ACTIONS.keys() - {"read", "write"}),
        ("missing", errno.ENOENT, ACTIONS.keys() - {"read", "write", "mkdir"}),
        ("full", errno.ENOSPC, ["write", "rename", "replace", "link", "mkdir"]),
    ],
)
def test_a_call_fails_with_its_errno_and_path(strike: str, number: int, ops: list[str], room: Path) -> None:
    for op in ops:
        with rank_here(f"rank 0: {strike} at file.{op}") as here:
            with pytest.raises(OSError, match=os.strerror(number)) as raised:
                ACTIONS[op](room)
            assert here.fired == (1,)
        assert raised.value.errno == number
        assert str(raised.value.filename).startswith(str(room))
        other = str(room / "new") if op in ("rename", "replace", "link") else None
        assert raised.value.filename2 == other
        assert {"old", "empty"} <= set(os.listdir(room)), f"{op} was done all the same"
        if op == "write":
            (room / "new").unlink()
        assert not (room / "new").exists(), f"{op} was done all the same"


def test_a_descriptor_fails_too(room: Path) -> None:
    fd = os.open(room / "old", os.O_RDWR)
    uses: dict[str, Callable[[], object]] = {
        "fsync": lambda: os.fsync(fd),
        "read": lambda: os.read(fd, 3),
        "write": lambda: os.write(fd, b"x"),
        "ftruncate": lambda: os.ftruncate(fd, 1),
        "posix_fallocate": lambda: os.posix_fallocate(fd, 0, 99),
        "flock": lambda: fcntl.flock(fd, fcntl.LOCK_SH),
    }
    for op, use in uses.items():
        with rank_here(f'rank 0: io_error at file.{op} on "old"') as here:
            with pytest.raises(OSError, match="Input/output error"):
                use()
            assert here.fired == (1,)
    os.close(fd)
    assert (room / "old").read_bytes() == b"0123456789"


def test_a_full_disk_leaves_half_a_write(tmp_path: Path) -> None:
    with rank_here("rank 0: full at file.write"), pytest.raises(OSError, match="No space left"):
        (tmp_path / "a").write_bytes(b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"01234"


@pytest.mark.parametrize(("given", "written"), [(b"", b""), (b"1", b""), (b"12", b"1"), (b"123", b"1")])
def test_half_of_a_small_write_is_rounded_down(given: bytes, written: bytes, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "a", os.O_WRONLY | os.O_CREAT)
    with rank_here("rank 0: full at file.write\nrank 0: delay(0) before file.write") as here:
        with pytest.raises(OSError, match="No space left"):
            os.write(fd, given)
        assert here.fired == (1, bool(written)), "nothing to write is no write"
    os.close(fd)
    assert (tmp_path / "a").read_bytes() == written


def test_half_of_a_write_is_counted_in_bytes(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb", buffering=0) as file:
        full = rank_here("rank 0: full at file.write")
        with full, pytest.raises(OSError, match="No space left"):
            os.write(file.fileno(), memoryview(array("i", [1, 2, 3])))
    assert (tmp_path / "a").stat().st_size == 3 * array("i").itemsize // 2


def test_what_has_vanished_already_vanishes_no_more(tmp_path: Path) -> None:
    for made in ("file", "directory"):
        with rank_here("rank 0: missing after file.*\nrank 0: missing after file.*") as here:
            (tmp_path / made).mkdir() if made == "directory" else (tmp_path / made).touch()
            assert here.fired == (1, 1)
        assert not list(tmp_path.iterdir())


def test_a_full_disk_under_torch_save(tmp_path: Path) -> None:
    with rank_here('rank 0: full at file.write on "*.pt"') as here:
        with pytest.raises(OSError, match="No space left"):
            torch.save(torch.arange(100), tmp_path / "a.pt")
        assert here.fired == (1,)
    assert (tmp_path / "a.pt").stat().st_size > 0
    with pytest.raises(Exception, match=r"zip|central directory|EOF|Unpickling|truncated|load key"):
        torch.load(tmp_path / "a.pt")


def test_a_full_disk_when_a_file_is_made(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("there")
    with rank_here("rank 0: full at file.open") as here:
        assert (tmp_path / "old").read_text() == "there"  # reading needs no room
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "new").write_text("more")
        assert here.fired == (1,)
    assert not (tmp_path / "new").exists()


def test_a_file_vanishes_after_it_was_made(tmp_path: Path) -> None:
    for op in ("rename", "replace", "link"):
        (tmp_path / "old").write_bytes(b"1")
        with rank_here(f"rank 0: missing after file.{op}") as here:
            getattr(os, op)(tmp_path / "old", tmp_path / "new")
            assert here.fired == (1,)
        assert not (tmp_path / "new").exists()
    with rank_here("rank 0: missing after file.mkdir\nrank 0: missing after file.write"):
        (tmp_path / "d").mkdir()
        (tmp_path / "w").write_bytes(b"1")
    assert not list(tmp_path.glob("[dw]"))


def test_a_directory_that_is_not_empty_does_not_vanish(room: Path) -> None:
    with rank_here("rank 0: missing after file.rename") as here:
        os.rename(room, room.with_name("moved"))
        assert here.fired == (0,)
        moved = room.with_name("moved")
        os.rename(moved / "empty", room.with_name("moved too"))
        assert here.fired == (1,)
    assert not room.with_name("moved too").exists()
    assert os.listdir(moved) == ["old"]


def test_missing_once_is_there_the_next_time(room: Path) -> None:
    with rank_here("rank 0: missing at file.stat"):
        assert not (room / "old").exists()
        assert (room / "old").exists()


def test_shared_memory_fails(segment: str) -> None:
    for strike, error in {"full": "No space left", "denied": "Permission denied", "oom": "out of memory"}.items():
        with rank_here(f'rank 0: {strike} at shm.create on "rankdrill-test-*"') as here:
            with pytest.raises((OSError, MemoryError), match=error):
                SharedMemory(segment, create=True, size=SEGMENT_BYTES)
            assert here.fired == (1,)
        assert not Path("/dev/shm", segment).exists()


def test_shared_memory_is_missing(segment: str) -> None:
    made = SharedMemory(segment, create=True, size=SEGMENT_BYTES)
    with rank_here("rank 0: missing at shm.attach"), pytest.raises(FileNotFoundError):
        SharedMemory(segment)
    made.close()
    made.unlink()
    with rank_here("rank 0: missing after shm.create"):
        lost = SharedMemory(segment, create=True, size=SEGMENT_BYTES)
    assert not Path("/dev/shm", segment).exists()
    lost.close()
    _forget(lost)


def test_files_in_shared_memory_fail(segment: str) -> None:
    path = f"/dev/shm/{segment}"
    with rank_here("rank 0: full at shm.posix_fallocate") as here:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        with pytest.raises(OSError, match="No space left"):
            os.posix_fallocate(fd, 0, SEGMENT_BYTES)
        os.close(fd)
        os.unlink(path)
        assert here.fired == (1,)


def test_a_directory_that_cannot_be_listed_is_not_removed(room: Path) -> None:
    with rank_here("rank 0: io_error at file.unlink"), pytest.raises(OSError, match="Input/output"):
        shutil.rmtree(room)
    assert (room / "old").exists() or (room / "empty").exists()


def _forget(segment: SharedMemory) -> None:
    # The tracker would warn of a segment that is gone.
    from multiprocessing import resource_tracker

    resource_tracker.unregister(segment._name, "shared_memory")  # type: ignore[attr-defined]
