"""The page that ranks of one machine share, its doorbell, and who is given them: all in one process."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from rankdrill.gathers.host.fence import fence, has_fence
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.local.doorbell import Doorbell
from rankdrill.gathers.local.endpoint import Endpoint, open_endpoint
from rankdrill.gathers.local.local_group import Exchange
from rankdrill.gathers.local.meeting import LineError, Meeting
from rankdrill.gathers.local.page import LARGEST_PART_BYTES, Page
from tests.gathers.attempts import TIMEOUT_S, raiser, replaced

SHORT_S = 2.0
SIZE = 3
MIDDLING = 100_000  # bytes: too many for a slot, few enough for a tray
A_MOMENT_S = 0.2


@pytest.fixture
def pages() -> Iterator[list[Page]]:
    """The same page as each of its ranks sees it."""
    descriptor = Page.create(SIZE)
    views = [Page(os.dup(descriptor), rank, SIZE) for rank in range(SIZE)]
    os.close(descriptor)
    yield views
    for view in views:
        view.close()


@pytest.fixture
def door() -> Iterator[Endpoint]:
    opened = open_endpoint()
    assert opened is not None
    yield opened
    opened.close()


def come(pages: list[Page], number: int, nbytes: int = 4) -> list[bool]:
    return [page.come(number, memoryview(bytes([16 * number + rank]) * nbytes)) for rank, page in enumerate(pages)]


def taken(page: Page, number: int, nbytes: int = 4) -> bytes | None:
    target = bytearray(nbytes * SIZE)
    return bytes(target) if page.take(number, nbytes, memoryview(target)) else None


# ---------------------------------------------------------------------------------------------- the page itself


def test_this_machine_has_a_fence() -> None:
    assert has_fence()
    fence()


def test_the_last_to_come_sees_all_others(pages: list[Page]) -> None:
    assert come(pages, 1) == [False, False, True]
    pages[2].complete(1)
    assert [page.is_complete(1) for page in pages] == [True] * SIZE
    assert {taken(page, 1) for page in pages} == {b"\x10" * 4 + b"\x11" * 4 + b"\x12" * 4}


def test_a_slow_rank_reads_its_exchange_while_others_are_in_the_next(pages: list[Page]) -> None:
    come(pages, 1)
    pages[2].complete(1)
    assert come(pages[:2], 2) == [False, False]
    assert pages[2].is_complete(1)
    assert taken(pages[2], 1) == b"\x10" * 4 + b"\x11" * 4 + b"\x12" * 4
    assert not pages[2].is_complete(2)
    assert pages[0].absent(2) == [2]


def test_parts_of_different_sizes_are_not_read(pages: list[Page]) -> None:
    come(pages[:2], 1, 4)
    assert pages[2].come(1, memoryview(bytes(8)))
    assert taken(pages[0], 1, 4) is None
    assert pages[0].given(1) == [4, 4, 8]


def test_who_leaves_does_so_from_an_exchange_on(pages: list[Page]) -> None:
    come(pages, 1)
    pages[1].leave(2)
    assert pages[0].left(1) == []
    assert pages[0].left(2) == [1]
    assert pages[0].left(3) == [1]


def test_a_part_that_does_not_fit_is_refused(pages: list[Page]) -> None:
    with pytest.raises(ValueError, match=str(LARGEST_PART_BYTES)):
        pages[0].come(1, memoryview(bytes(LARGEST_PART_BYTES + 1)))


def test_a_tray_is_written_by_one_and_read_by_all(pages: list[Page]) -> None:
    pages[1].own_tray(5)[:] = b"hello"
    assert bytes(pages[0].tray(1, 5)) == b"hello"
    with pytest.raises(TypeError):
        pages[0].tray(1, 5)[0] = 1
    assert bytes(pages[1].tray(2, 5)) == bytes(5)


def test_nobody_can_make_the_page_shorter() -> None:
    descriptor = Page.create(SIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 1 << 40)
    assert os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:")
    os.close(descriptor)


# ---------------------------------------------------------------------------------------------- its doorbell


def doorbell_of(child: int) -> Doorbell:
    with open(f"/proc/{child}/stat") as file:
        started = int(file.read().rpartition(")")[2].split()[19])
    me = identify()
    return Doorbell(Doorbell.create(), [me, replace(me, pid=child, started=started)])


@pytest.mark.parametrize("watched", [True, False])
def test_a_process_that_ends_ends_the_sleep(watched: bool) -> None:
    child = os.fork()
    if child == 0:
        time.sleep(A_MOMENT_S)
        os._exit(0)
    with replaced(os, "pidfd_open", raiser(OSError(errno.ENOSYS, "none")), not watched):
        doorbell = doorbell_of(child)
    assert not doorbell.sleep(0.0)
    began = time.monotonic()
    assert doorbell.sleep(TIMEOUT_S)
    assert doorbell.gone == {1}
    assert time.monotonic() - began < TIMEOUT_S / 2
    assert not doorbell.sleep(0.05)  # told once
    os.waitpid(child, 0)
    doorbell.close()
    doorbell.close()


def test_a_ring_ends_one_sleep_of_everybody() -> None:
    descriptor = Doorbell.create()
    doorbells = [Doorbell(os.dup(descriptor), [identify()]) for _ in range(3)]
    os.close(descriptor)
    doorbells[0].ring()
    assert [doorbell.sleep(TIMEOUT_S) for doorbell in doorbells] == [True] * 3
    assert [doorbell.sleep(0.0) for doorbell in doorbells] == [False] * 3
    for doorbell in doorbells:
        doorbell.close()


@pytest.mark.parametrize("comes", [True, False])
def test_a_rank_that_dies_when_it_has_come_last_has_come(comes: bool) -> None:
    """Before it says that all have: then who has waited says it. If it has not come, it is missed."""
    page = Page(Page.create(2), 0, 2)
    child = os.fork()
    if child == 0:
        time.sleep(A_MOMENT_S)
        if comes:
            Page(os.dup(page._descriptor), 1, 2).come(1, memoryview(b"b"))
        os._exit(0)
    doorbell, received = doorbell_of(child), bytearray(2)
    group: Any = SimpleNamespace(page=page, doorbell=doorbell, connected=True, passed=0)
    exchange = Exchange(group, 1, memoryview(b"a"), memoryview(received), timedelta(seconds=TIMEOUT_S))
    if comes:
        assert exchange.wait()
        assert bytes(received) == b"ab"
    else:
        with pytest.raises(LineError, match="the process of rank 1 of the channel ended"):
            exchange.wait()
    os.waitpid(child, 0)
    doorbell.close()
    page.close()


# ---------------------------------------------------------------------------------------------- how ranks get it


def test_nobody_is_handed_a_page_in_the_name_of_another(door: Endpoint) -> None:
    """Not even a member, as this process is here, at rank 0."""
    other = replace(identify(), pid=os.getppid())
    made: list[Any] = []

    def make() -> None:
        made.append(attempted(Meeting(door, ["", ""], [identify(), other]).connect, 0, SHORT_S / 4))

    maker = threading.Thread(target=make)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(door.address.path)
        caller.sendall(b"\1\0\0\0")
        maker.start()
        assert caller.recv(1) == b""
    maker.join()
    assert "no page with all ranks" in made[0]


def test_a_page_is_taken_from_rank_0_alone(door: Endpoint) -> None:
    processes = [replace(identify(), pid=os.getppid()), identify()]
    own = open_endpoint()
    assert own is not None
    assert "another process's" in attempted(
        lambda: Meeting(own, [door.address.path, ""], processes).connect(1, SHORT_S)
    )


def attempted(action: Callable[..., Any], *args: Any) -> str:
    try:
        return str(action(*args))
    except LineError as error:
        return str(error)
