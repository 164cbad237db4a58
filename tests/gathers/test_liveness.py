"""Which processes are gone, and what of theirs is swept."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from dataclasses import replace

from rankdrill.gathers.encoding.wire import encode
from rankdrill.gathers.host.liveness import NO_IDENTITY, Identity, identify, is_gone
from rankdrill.gathers.storage import files


def ended() -> Identity:
    """A process of this machine that has ended."""
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return replace(identify(), pid=int(child.stdout), started=1)


def test_this_process_lives() -> None:
    assert not is_gone(identify(), identify())


def test_a_process_that_ended_is_gone_even_if_not_yet_reaped() -> None:
    assert is_gone(ended(), identify())
    child = subprocess.Popen([sys.executable, "-c", ""])
    me = identify()
    with open(f"/proc/{child.pid}/stat") as stat:
        started = int(stat.read().rpartition(")")[2].split()[19])
    zombie = Identity(me.machine, child.pid, started)
    deadline = time.monotonic() + 30
    while not is_gone(zombie, me) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_gone(zombie, me)
    child.wait()


def test_another_process_with_its_number_does_not_count() -> None:
    assert is_gone(replace(identify(), started=1), identify())


def test_of_another_machine_nothing_is_certain() -> None:
    assert not is_gone(replace(ended(), machine=identify().machine ^ 1), identify())
    assert not is_gone(NO_IDENTITY, identify())


def test_identities_are_text_and_back() -> None:
    assert Identity.parse(str(identify())) == identify()
    assert Identity.parse("nonsense") is None
    assert Identity.parse("a-b-c") is None


def test_only_what_the_dead_left_is_swept(tmp_path: pathlib.Path) -> None:
    me, base = identify(), str(tmp_path)
    stranger = replace(me, machine=me.machine ^ 1)
    for number, owner in enumerate((me, ended(), stranger)):
        files.offer(base, encode(number), bytes([number]) * 16, owner)
    old = files.offer(base, encode(3), bytes([3]) * 16, stranger)
    os.utime(old.path, (0, 0))
    (tmp_path / "rankdrill-of-somebody").touch()
    files.sweep(base)
    left = sorted(path.name for path in tmp_path.iterdir())
    expected = sorted([f"rankdrill-{me}-{'00' * 16}", f"rankdrill-{stranger}-{'02' * 16}", "rankdrill-of-somebody"])
    assert left == expected


def test_files_and_directories_are_private(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o002)
    try:
        offered = files.offer(str(tmp_path / "made" / "too"), encode(1), b"n" * 16, identify())
    finally:
        os.umask(before)
    for made in ("made", "made/too"):
        assert os.stat(tmp_path / made).st_mode & 0o777 == 0o700
    assert os.stat(offered.path).st_mode & 0o777 == 0o600
    assert os.stat(files.default_directory()).st_mode & 0o777 == 0o700
