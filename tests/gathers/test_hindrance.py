"""A machine that lacks something: gathers say on all ranks what it is and which rank lacks it, before anybody waits."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import resource
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather, all_gather_shm, gather
from rankdrill.gathers.host.descriptors import require_descriptors
from rankdrill.gathers.local import hindrance
from rankdrill.gathers.local.hindrance import what_hinders
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt, raiser, replaced
from tests.gathers.hiding import hidden

LARGE = 100_000
NOT_ALLOWED = "not allowed"
NAMESPACES = "mount namespaces need root, and a kernel that gives them"

LACKS = {
    "/dev": ("", "shares no memory: there is no /dev/shm here; mount a tmpfs there, or use all_gather_object"),
    "/dev/shm": ("nr_inodes=1", "shares no memory: /dev/shm is full; make room there (docker: --shm-size=1g), or use"),
    "/proc": ("", "shares no memory: /proc is not there, or hides this process; mount it, without hidepid, or use"),
}


@pytest.fixture
def three() -> Iterator[rankdrill.World]:
    """Ranks of which some are to lack a part of their machine when they first meet."""
    with rankdrill.World(3) as world:
        yield world


@pytest.mark.parametrize("place", LACKS)
@pytest.mark.parametrize("without", [(0,), (2,), (0, 1, 2)])
def test_what_a_rank_lacks_is_told_by_all(three: rankdrill.World, place: str, without: tuple[int, ...]) -> None:
    options, said = LACKS[place]

    def body() -> Any:
        payload = b"x" * LARGE
        with hidden(place, dist.get_rank() in without, options) as done:
            failed = attempt(all_gather_shm, payload, timeout=TIMEOUT_S) if done else NOT_ALLOWED
        return failed, [len(one) for one in all_gather(payload, timeout=TIMEOUT_S)]

    told = three.run(body).unwrap()
    if any(failed == NOT_ALLOWED for failed, _ in told):
        pytest.skip(NAMESPACES)
    failed, after = all_alike(told)
    assert (failed.kind, failed.ranks) == ("StorageError", without)
    assert failed.text.count(said) == len(without)
    assert "another machine" not in failed.text
    assert after == [LARGE] * 3


def test_a_rank_on_another_machine_is_not_said_to_lack_anything(three: rankdrill.World) -> None:
    def body() -> Any:
        with hidden("/dev/shm", dist.get_rank() == 1) as done:
            return attempt(gather, b"x" * LARGE, "shm", timeout=TIMEOUT_S) if done else NOT_ALLOWED

    told = three.run(body).unwrap()
    if NOT_ALLOWED in told:
        pytest.skip(NAMESPACES)
    failed = all_alike(told)
    assert (failed.kind, failed.ranks) == ("StorageError", (1,))
    assert "is on another machine than rank 0, or shares no memory with it; use path='auto'" in failed.text


def test_what_hinders_leaves_nothing_and_finds_nothing_here() -> None:
    before = len(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm"))
    assert what_hinders() == ""
    mine = {name for name in set(os.listdir("/dev/shm")) - before[1] if f"-{os.getpid()}-" in name}
    assert (len(os.listdir("/proc/self/fd")), mine) == (before[0], set())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(13, "Permission denied"), "/dev/shm cannot be used: Permission denied"),
        (OSError(122, "Disk quota exceeded"), "/dev/shm is full; make room there"),
        (AttributeError("memfd_create"), "this Python has no memfd_create"),
    ],
)
def test_whatever_else_hinders_is_told_too(error: Exception, said: str) -> None:
    with replaced(hindrance, "_make_name", raiser(error)):
        assert said in what_hinders()


def left_with(descriptors: int) -> tuple[int, int]:
    """Let this process open so many more files; the limits before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = itertools.islice(filter(is_free, itertools.count()), descriptors)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, before[1]))
    return before


def is_free(number: int) -> bool:
    try:
        fcntl.fcntl(number, fcntl.F_GETFD)
    except OSError:
        return True
    return False


def test_descriptors_are_tried_and_given_back() -> None:
    before = left_with(10)
    try:
        told = [refused(count) for count in (8, 8, 11, 8, 11, 8)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    # One less may be free: a thread that waits in accept() has taken a number already.
    assert re.search(r"11 more file descriptors are needed and (9|10) are to be had \(ulimit -n is ", told[2])
    assert told == ["", "", told[2], "", told[2], ""]


def refused(count: int) -> str:
    try:
        require_descriptors(count)
    except OSError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("descriptors", [2, 4, 7])
@pytest.mark.parametrize("short", [(1,), (0, 1, 2, 3)])
def test_too_few_descriptors_are_told_by_all_before_anybody_waits(
    world: rankdrill.World, descriptors: int, short: tuple[int, ...]
) -> None:
    """Over gloo, which looks for them in a thread of its own and finds none, the rank would be ended by it."""

    def body() -> Any:
        group = dist.new_group([0, 1, 2, 3])
        before = left_with(descriptors) if dist.get_rank() in short else None
        try:
            failed = attempt(all_gather, b"x" * LARGE, group=group, timeout=TIMEOUT_S)
        finally:
            if before is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
        dist.barrier()
        return failed, [len(one) for one in all_gather(b"x" * LARGE, group=group, timeout=TIMEOUT_S)]

    failed, after = all_alike(world.run(body).unwrap())
    assert failed.kind == "StorageError"
    assert set(failed.ranks) <= set(short)
    assert "10 more file descriptors are needed and " in failed.text
    assert "are to be had (ulimit -n is " in failed.text
    assert after == [LARGE] * 4
