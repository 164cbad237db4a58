"""Files that ranks read and write anew: told where what one wrote is gone, not where they keep out of the way."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.worlds.test_stores import marks

Body = Callable[[Path], None]


def begin(directory: Path) -> Path:
    """A file that is there, and on their way from where ranks go on at the same time."""
    path = directory / "manifest.json"
    if dist.get_rank() == 0:
        path.write_text("{}")
    dist.barrier()
    return path


def all_have_read(directory: Path, ranks: Collection[int] = range(4)) -> None:
    """Go on when `ranks` have: none may have written before another has read, however busy the machine is."""
    if dist.get_rank() in ranks:
        (directory / f"rank {dist.get_rank()} has read").touch()
    while len(list(directory.glob("rank * has read"))) < len(ranks):
        time.sleep(0.001)


def all_add_themselves(directory: Path) -> None:
    path = begin(directory)
    entries = json.loads(path.read_text())
    all_have_read(directory)
    entries[str(dist.get_rank())] = 1
    path.write_text(json.dumps(entries))  # writes


def by_putting_another_in_its_place(directory: Path) -> None:
    path = begin(directory)
    entries = json.loads(path.read_text())
    all_have_read(directory)
    draft = directory / f"draft {dist.get_rank()}"
    draft.write_text(json.dumps({**entries, str(dist.get_rank()): 1}))
    os.replace(draft, path)  # writes


def by_descriptors(directory: Path) -> None:
    path = begin(directory)
    fd = os.open(path, os.O_RDONLY)
    entries = json.loads(os.read(fd, 100))
    os.close(fd)
    all_have_read(directory)
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)  # writes
    os.write(fd, json.dumps({**entries, str(dist.get_rank()): 1}).encode())
    os.close(fd)


def read_before_they_met(directory: Path) -> None:
    path = begin(directory)
    entries = json.loads(path.read_text())
    dist.all_reduce(torch.ones(1))
    path.write_text(json.dumps({**entries, str(dist.get_rank()): 1}))  # writes


@pytest.mark.parametrize(
    "body", [all_add_themselves, by_putting_another_in_its_place, by_descriptors, read_before_they_met]
)
def test_what_one_wrote_is_gone(four: World, tmp_path: Path, body: Body) -> None:
    (found,) = four.run(body, tmp_path, deadline=30).findings
    assert (found.kind, found.step) == (FindingKind.LOST_UPDATE, "file 'manifest.json'")
    assert found.culprits == found.ranks
    assert len(found.ranks) > 1
    assert marks(found)[0] == {"writes"}
    assert "'manifest.json' at tests/worlds/test_file_updates.py:" in found.sides[0].did
    assert found.sides[0].did.endswith("and then write it anew, undoing what others did to it between the two")


def meet() -> None:
    dist.all_reduce(torch.ones(1))


def known(path: Path) -> dict[str, int]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def looked_for_before_there_was_one(directory: Path) -> None:
    """Only what they write is under the lock; all have looked for the file by then, and found none."""
    path = directory / "manifest.json"

    entries = known(path)
    meet()
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path.write_text(json.dumps({**entries, str(dist.get_rank()): 1}))  # writes
    dist.barrier()
    known(path)


def under_locks_of_their_own(directory: Path) -> None:
    """All add one to what they have read, so that they write the same."""
    path = begin(directory)
    with (directory / f"manifest.lock{dist.get_rank()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entries = json.loads(path.read_text())
        all_have_read(directory)
        path.write_text(json.dumps({"count": entries.get("count", 0) + 1}))  # writes


@pytest.mark.parametrize("body", [looked_for_before_there_was_one, under_locks_of_their_own])
def test_a_lock_that_keeps_nobody_out(four: World, tmp_path: Path, body: Body) -> None:
    (found,) = four.run(body, tmp_path, deadline=30).findings
    assert (found.kind, found.step) == (FindingKind.LOST_UPDATE, "file 'manifest.json'")
    assert found.culprits == found.ranks
    assert len(found.ranks) > 1
    assert marks(found)[0] == {"writes"}


def one_without_the_lock(directory: Path) -> None:
    path = begin(directory)
    with (directory / "lock").open("w") as lock:
        if dist.get_rank() != 2:
            fcntl.flock(lock, fcntl.LOCK_EX)
        entries = json.loads(path.read_text())
        all_have_read(directory, ranks=[2])
        time.sleep(0.3 if dist.get_rank() == 2 else 0.0)
        path.write_text(json.dumps({**entries, str(dist.get_rank()): 1}))  # writes
        fcntl.flock(lock, fcntl.LOCK_UN)


def test_who_takes_no_lock_is_at_fault(four: World, tmp_path: Path) -> None:
    (found,) = four.run(one_without_the_lock, tmp_path, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.LOST_UPDATE, (2,))
    assert "the lock of 'lock' meanwhile" in str(found)


def under_a_lock(directory: Path) -> None:
    path = begin(directory)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entries = json.loads(path.read_text())
        path.write_text(json.dumps({**entries, str(dist.get_rank()): 1}))


def one_after_the_other(directory: Path) -> None:
    path = begin(directory)
    for turn in range(dist.get_world_size()):
        if turn == dist.get_rank():
            entries = json.loads(path.read_text())
            path.write_text(json.dumps({**entries, str(turn): 1}))
        dist.barrier()


def whose_turn_it_is_writes_all(directory: Path) -> None:
    """All have read what was there first; each then takes the place of the one before."""
    path = begin(directory)
    json.loads(path.read_text())
    for turn in range(dist.get_world_size()):
        if turn == dist.get_rank():
            path.write_text(json.dumps({"latest": turn}))
        dist.barrier()


def all_write_the_same(directory: Path) -> None:
    path = begin(directory)
    entries = json.loads(path.read_text())
    all_have_read(directory)
    path.write_text(json.dumps({**entries, "ranks": dist.get_world_size()}))


def each_has_its_own(directory: Path) -> None:
    begin(directory)
    path = directory / f"{dist.get_rank()}.json"
    path.write_text("{}")
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({**entries, str(dist.get_rank()): 1}))


def added_at_the_end(directory: Path) -> None:
    path = begin(directory)
    path.read_text()
    with path.open("a") as lines:
        lines.write(f"{dist.get_rank()}\n")


def by_the_first_alone(directory: Path) -> None:
    path = begin(directory)
    entries = json.loads(path.read_text())
    all_have_read(directory)
    if dist.get_rank() == 0:
        path.write_text(json.dumps({**entries, "ranks": dist.get_world_size()}))


def in_turn_by_a_message(directory: Path) -> None:
    """Rank 0 holds a lock meanwhile, of something else."""
    begin(directory)
    rank, status = dist.get_rank(), directory / "status.txt"
    own = directory / f"{rank}.txt"
    own.write_text("0")
    own.write_text(own.read_text() + "1")  # by which the rank is asked what it did to files
    dist.barrier()
    if not status.exists() and rank == 0:
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            status.write_text("0")
            fcntl.flock(lock, fcntl.LOCK_UN)
        dist.send(torch.ones(1), 1)
    elif rank == 1:
        dist.recv(torch.ones(1), 0)
        status.write_text("1")


def who_is_first_after_a_lock_that_was_closed(directory: Path) -> None:
    begin(directory)
    rank, marker = dist.get_rank(), directory / "marker"
    own = directory / f"{rank}.txt"
    own.write_text("0")
    own.write_text(own.read_text() + "1")
    if rank < 2:
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
    dist.barrier()
    if not marker.exists():
        marker.write_text(f"first: {rank}")


def looked_for_and_written_under_one_lock(directory: Path) -> None:
    path = directory / "manifest.json"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entries = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**entries, str(dist.get_rank()): 1}))


def looked_for_and_written_by_all_alike(directory: Path) -> None:
    path = directory / "manifest.json"

    entries = known(path)
    meet()
    path.write_text(json.dumps({**entries, "ranks": dist.get_world_size()}))
    dist.barrier()
    known(path)


def all_write_the_same_and_hold_something_of_their_own(directory: Path) -> None:
    path = begin(directory)
    with (directory / f"cache {dist.get_rank()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entries = json.loads(path.read_text())
        all_have_read(directory)
        path.write_text(json.dumps({**entries, "ranks": dist.get_world_size()}))


def made_by_whoever_is_first(directory: Path) -> None:
    """What they write is not the same, and that of any of them will do."""
    stamp = directory / "stamp"

    def read() -> str | None:
        return stamp.read_text() if stamp.exists() else None

    if read() is None:
        meet()
        stamp.write_text(f"made by {dist.get_rank()}")
    dist.barrier()
    read()


def the_same_under_locks_of_their_own_directories(directory: Path) -> None:
    """Each keeps its own files to itself."""
    own = directory / str(dist.get_rank())
    own.mkdir()
    with (own / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (own / "count").write_text("0")
        (own / "count").write_text(str(int((own / "count").read_text()) + 1))


@pytest.mark.parametrize(
    "body",
    [
        looked_for_and_written_under_one_lock,
        looked_for_and_written_by_all_alike,
        the_same_under_locks_of_their_own_directories,
        all_write_the_same_and_hold_something_of_their_own,
        made_by_whoever_is_first,
        in_turn_by_a_message,
        who_is_first_after_a_lock_that_was_closed,
        under_a_lock,
        one_after_the_other,
        whose_turn_it_is_writes_all,
        all_write_the_same,
        each_has_its_own,
        added_at_the_end,
        by_the_first_alone,
    ],
)
def test_nothing_is_lost(four: World, tmp_path: Path, body: Body) -> None:
    outcome = four.run(body, tmp_path, deadline=30)
    assert outcome.ok, outcome.summary()
