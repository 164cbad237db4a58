"""A file that only one can make, or a lock that is tried for again and again: who has it while others wait for it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import filelock
import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from tests.worlds.test_stores import marks

SOON_S = 3.0  # a deadline for what nobody can be certain of
LATER_S = 0.2
Take = Callable[[Path], object]


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    with World(3) as world:
        yield world


def found_by(world: World, body: Callable[..., object], *args: object) -> tuple[Finding, ...]:
    return world.run_job(Job(body, args, with_context=True), deadline=SOON_S).findings


def opens_exclusively(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def opens_for_itself(path: Path) -> None:
    path.open("x").close()


def locks_without_waiting(path: Path) -> None:
    fcntl.flock(os.open(path, os.O_CREAT | os.O_WRONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def tries_until_it_has_it(take: Take, path: Path) -> None:
    while True:
        try:
            take(path)
        except OSError:
            time.sleep(0.02)
        else:
            return


def meets_with_the_lock(rank: RankContext, take: Take, path: Path) -> None:
    tries_until_it_has_it(take, path)
    dist.barrier()
    path.unlink()


@pytest.mark.parametrize("take", [opens_exclusively, opens_for_itself, locks_without_waiting, Path.mkdir])
def test_who_has_it_waits_for_those_that_try(three: World, take: Take, tmp_path: Path) -> None:
    (finding,) = found_by(three, meets_with_the_lock, take, tmp_path / "lock")
    assert (finding.kind, finding.culprits) == ("deadlock", ())
    (holder,) = (side for side in finding.sides if side.did.startswith("holds "))
    (trying,) = (side for side in finding.sides if side is not holder)
    assert "/lock', at " in str(holder)
    assert "and waits in barrier #0 on 'default'" in holder.did
    assert trying.did.startswith("wait for the lock of '")  # a long path is cut
    assert trying.did.endswith("/lock'")
    assert sorted((*holder.ranks, *trying.ranks)) == [0, 1, 2]
    assert all(site is not None for side in finding.sides for site in side.sites)


def meets_in_a_librarys_lock(rank: RankContext, lock: type[filelock.BaseFileLock], path: Path) -> None:
    with lock(path):  # takes
        dist.barrier()  # meets


@pytest.mark.parametrize("lock", [filelock.FileLock, filelock.SoftFileLock])
def test_a_library_tries_again_and_again_too(three: World, lock: type[filelock.BaseFileLock], tmp_path: Path) -> None:
    (finding,) = found_by(three, meets_in_a_librarys_lock, lock, tmp_path / "lock")
    assert (finding.kind, finding.culprits) == ("deadlock", ())
    assert sorted(map(sorted, marks(finding))) == [["meets"], ["takes"]]


def one_returns_with_it(rank: RankContext, path: Path) -> None:
    if rank.index != 1:
        time.sleep(LATER_S)
    tries_until_it_has_it(Path.mkdir, path)
    if rank.index != 1:
        path.rmdir()


def test_who_returns_with_it_is_to_blame(three: World, tmp_path: Path) -> None:
    (finding,) = found_by(three, one_returns_with_it, tmp_path / "lock")
    assert (finding.kind, finding.culprits) == ("stuck rank", (1,))
    assert finding.sides[0].did.endswith("/lock', has not given it up, and returned")
    assert 2 in finding.sides[1].ranks or 0 in finding.sides[1].ranks, "one may not have come to it yet"


def tries_for_what_was_there(rank: RankContext, path: Path) -> None:
    """Who has made it is of an earlier run, or another one's."""
    tries_until_it_has_it(Path.mkdir, path.parent)


def gave_it_up(rank: RankContext, path: Path) -> None:
    """Somebody else, whom nobody sees, has it now."""
    if rank.index == 1:
        path.mkdir()
        path.rmdir()
        os.system(f"mkdir {path}")
        return
    time.sleep(LATER_S)
    tries_until_it_has_it(Path.mkdir, path)


def tries_for_two(rank: RankContext, path: Path) -> None:
    """Whichever it gets first is enough."""
    if rank.index == 1:
        for name in "ab":
            path.with_suffix(f".{name}").mkdir()
        return
    time.sleep(LATER_S)
    while True:
        for name in "ab":
            with suppress(FileExistsError):
                path.with_suffix(f".{name}").mkdir()
                return
        time.sleep(0.02)


def makes_sure_that_it_is_there(rank: RankContext, path: Path) -> None:
    """It need not be new: nobody waits for a lock, and rank 2 is busy with something else."""
    if rank.index == 2:
        time.sleep(LATER_S)
    for _ in range(4):
        path.mkdir(exist_ok=True)
    done: list[int] = []
    while rank.index == 2 and not done:
        time.sleep(0.02)


def reads_with_others(rank: RankContext, path: Path) -> None:
    """Of several that read it at once nobody knows who still does."""
    path.touch()
    if rank.index == 1:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            dist.recv(torch.zeros(1), 0)
    elif rank.index == 2:
        time.sleep(LATER_S)
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
    else:
        time.sleep(2 * LATER_S)
        tries_until_it_has_it(locks_without_waiting, path)
        dist.send(torch.zeros(1), 1)


@pytest.mark.parametrize(
    "body",
    [tries_for_what_was_there, gave_it_up, tries_for_two, makes_sure_that_it_is_there, reads_with_others],
)
def test_nobody_is_said_to_have_it_where_that_is_not_known(
    three: World, body: Callable[..., object], tmp_path: Path
) -> None:
    assert found_by(three, body, tmp_path / "lock") == ()
