"""The private directory: nobody else's, one per controller, swept when its controller is dead."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from rankdrill.ledger import LedgerWriter
from rankdrill.ledger.format import MOST_RECORDS
from rankdrill.step import Kind, Step
from rankdrill.worlds.home import home
from rankdrill.worlds.private import PrivateDirectory, remove_segments, sweep
from tests.ledger.lying import lying

DAMAGED = 32
SWEPT_S = 2.0  # of CPU; if what such ledgers say were believed, each would take a fifth of that


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of this test alone; returns what will be its user's home in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"rankdrill-{os.getuid()}"


def test_only_its_owner_may_enter(place: Path) -> None:
    before = os.umask(0)
    try:
        directory = PrivateDirectory()
    finally:
        os.umask(before)
    assert directory.path.parent == home() == place
    for path in (place, directory.path):
        assert path.stat().st_mode & 0o777 == 0o700
    assert (directory.path / "lock").stat().st_mode & 0o777 == 0o600
    directory.remove()
    assert list(place.iterdir()) == []


def make_and_die(place: Path, count: int = 1) -> None:
    source = f"""
import os, tempfile
tempfile.tempdir = {str(place.parent)!r}
from rankdrill.worlds.private import PrivateDirectory
kept = [PrivateDirectory() for _ in range({count})]
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=120)


def test_the_dead_are_swept_and_the_living_left(place: Path) -> None:
    make_and_die(place, 2)
    dead = set(place.iterdir())
    assert len(dead) == 2
    living = PrivateDirectory()
    assert list(place.iterdir()) == [living.path], "making one sweeps"
    other = PrivateDirectory()
    assert sweep(place) == []
    assert set(place.iterdir()) == {living.path, other.path}


def test_a_removal_cut_short_is_finished_and_a_directory_just_being_made_is_left(place: Path) -> None:
    home()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    half_gone, new = place / f"run-{dead.pid}-00", place / f"run-{os.getpid()}-00"
    for path in (half_gone, new):
        path.mkdir()
    (half_gone / "world-1").mkdir()
    assert sweep(place) == [half_gone]
    assert list(place.iterdir()) == [new]


def test_what_is_not_ours_to_judge_is_left(place: Path) -> None:
    home()
    (place / "run-without-lock").mkdir()
    (place / "run-file").write_text("")
    (place / "something").mkdir()
    assert sweep(place) == []
    assert len(list(place.iterdir())) == 3


def test_many_at_once_keep_their_own(place: Path) -> None:
    """Each sweeps while the others make theirs."""
    source = f"""
import tempfile
tempfile.tempdir = {str(place.parent)!r}
from rankdrill.worlds.private import PrivateDirectory
for _ in range(100):
    directory = PrivateDirectory()
    assert (directory.path / "lock").exists()
    directory.remove()
"""
    started = [subprocess.Popen([sys.executable, "-c", source], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert errors == [""] * 4
    assert sweep(place) == []


def test_segments_of_the_dead_go_too(place: Path) -> None:
    make_and_die(place)
    (run,) = place.iterdir()
    name = f"rankdrill-test-{os.getpid()}"
    segment = Path("/dev/shm") / name
    segment.write_bytes(b"left over")
    try:
        with LedgerWriter(run / "rank-0.ledger", rank=0, world_size=1) as ledger:
            ledger.begin(Step(Kind.SHM, "create", f"/{name}"))
        (run / "rank-1.ledger").write_bytes(b"torn")
        assert sweep(place) == [run]
        assert not segment.exists()
    finally:
        segment.unlink(missing_ok=True)


def test_damaged_ledgers_hold_nobody_up(place: Path) -> None:
    make_and_die(place)
    (run,) = place.iterdir()
    for rank in range(DAMAGED):
        lying(run / f"rank-{rank}.ledger", MOST_RECORDS)
    os.mkfifo(run / "rank-x.ledger")
    began = time.process_time()
    assert sweep(place) == [run]
    assert time.process_time() - began < SWEPT_S
    assert list(place.iterdir()) == []


def test_segments_that_others_made_are_left(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "rank-0.ledger", rank=0, world_size=1) as ledger:
        ledger.begin(Step(Kind.SHM, "attach", "/somebody-elses"))
        ledger.begin(Step(Kind.SHM, "create", "/never-came-to-be"))
    assert remove_segments(tmp_path) == []
