"""Ranks of one machine: how they find one another, what ends their waiting, and when they fall back on gloo."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

import rankdrill
from rankdrill import gathers
from rankdrill.gathers import all_gather
from rankdrill.gathers.agreement import channel
from rankdrill.gathers.agreement.line import Line
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.local import endpoint
from rankdrill.gathers.local.endpoint import Address, Endpoint, is_visible, open_endpoint
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt, raiser, replaced

SHORT_S = 3.0


@pytest.fixture
def four() -> Iterator[rankdrill.World]:
    with rankdrill.World(4) as world:
        yield world


@pytest.fixture
def door() -> Iterator[Endpoint]:
    opened = open_endpoint()
    assert opened is not None
    yield opened
    opened.close()


def gather() -> Any:
    return attempt(all_gather, dist.get_rank(), timeout=TIMEOUT_S)


def is_local() -> tuple[Any, bool]:
    return gather(), channel_of().one_host


def test_ranks_of_one_machine_find_one_another(four: rankdrill.World) -> None:
    assert all_alike(four.run(is_local).unwrap()) == ([0, 1, 2, 3], True)


@pytest.mark.parametrize("without", [1, 4])
def test_without_an_endpoint_on_some_rank_all_use_gloo(four: rankdrill.World, without: int) -> None:
    def body() -> Any:
        with replaced(channel, "open_endpoint", lambda: None, dist.get_rank() < without):
            gathered, local = is_local()
        return gathered, local, channel_of().hosts

    hosts = ((0,), (1, 2, 3)) if without == 1 else ((0,), (1,), (2,), (3,))
    assert all_alike(four.run(body).unwrap()) == ([0, 1, 2, 3], False, hosts)


def test_one_rank_that_wants_gloo_gets_it(four: rankdrill.World) -> None:
    def body() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RANKDRILL_LINE", "gloo" if dist.get_rank() == 2 else "local")
            return is_local()

    assert all_alike(four.run(body).unwrap()) == ([0, 1, 2, 3], False)


def test_a_line_that_does_not_exist_is_everybodys_error(four: rankdrill.World) -> None:
    def body() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RANKDRILL_LINE", "carrier pigeon" if dist.get_rank() == 1 else "")
            return gather()

    failed = all_alike(four.run(body).unwrap())
    assert failed.ranks == (1,)
    assert "RANKDRILL_LINE=carrier pigeon" in failed.text


def test_a_rank_that_dies_is_missed_although_its_child_holds_its_descriptors(four: rankdrill.World) -> None:
    def body() -> Any:
        gather()
        if dist.get_rank() == 2:
            if os.fork() == 0:
                time.sleep(TIMEOUT_S)
                os._exit(0)
            os._exit(7)
        began = time.monotonic()
        return gather(), time.monotonic() - began

    survivors = [one.value for rank, one in enumerate(four.run(body).ranks) if rank != 2]
    failed = all_alike([value[0] for value in survivors])
    assert (failed.kind, failed.ranks) == ("PeerLost", (2,))
    assert max(seconds for _, seconds in survivors) < TIMEOUT_S / 2


def test_exchanges_of_different_sizes_end_in_an_error_and_not_the_process() -> None:
    """Outside of a world nobody compares contracts: the gather has to end by itself."""

    def body() -> Any:
        gather()
        if dist.get_rank() == 3:
            channel_of().slot_bytes += 64
        return gather(), gather()

    with rankdrill.World(4, contracts=False) as four:
        failed, after = all_alike(four.run(body).unwrap())
    assert failed.kind == "PeerLost"
    # Which of them is told depends on who hangs up first.
    assert re.search("sent [0-9]+ bytes in exchange|hung up", failed.text)
    assert after == [0, 1, 2, 3]


def test_ranks_of_which_only_some_had_begun_to_connect_meet_again(four: rankdrill.World) -> None:
    """For large payloads over the network they connect anew each time, and count the times alike."""

    def body() -> Any:
        sent = bytes([dist.get_rank()]) * 100_000
        gather()
        with replaced(Line, "open_bulk", raiser(MemoryError("none left")), dist.get_rank() == 2):
            failed = attempt(gathers.gather, sent, "network", timeout=SHORT_S)
        after = attempt(gathers.gather, sent, "network", timeout=TIMEOUT_S)
        return failed.kind, failed.ranks, [one[:1] for one in after] if isinstance(after, list) else after

    assert all_alike(four.run(body).unwrap()) == ("DecodeError", (2,), [b"\0", b"\1", b"\2", b"\3"])


def test_nothing_is_left_of_an_endpoint(four: rankdrill.World) -> None:
    def body() -> list[str]:
        gather()
        mine = f"-{os.getpid()}-"
        return [name for name in os.listdir("/dev/shm") if name.startswith("rankdrill-") and mine in name]

    assert all_alike(four.run(body).unwrap()) == []


def test_an_endpoint_is_for_this_user_alone(door: Endpoint) -> None:
    assert is_visible(door.address, os.getpid())
    assert os.stat(door.address.path).st_mode & 0o777 == 0o600


def test_something_else_under_an_endpoints_name_is_not_seen(door: Endpoint) -> None:
    os.unlink(door.address.path)
    assert not is_visible(door.address, os.getpid())
    with open(door.address.path, "w"):
        assert not is_visible(door.address, os.getpid())


def test_a_rank_whose_memory_cannot_be_read_is_not_seen(door: Endpoint) -> None:
    other = open_endpoint()
    assert other is not None
    assert not is_visible(Address(door.address.path, other.address.proof), os.getpid())
    assert not is_visible(door.address, os.getppid())
    with open(os.devnull) as file:
        assert not is_visible(Address(door.address.path, file.fileno()), os.getpid())
    other.close()


def test_a_caller_that_is_no_member_is_turned_away(door: Endpoint) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(door.address.path)
        caller.sendall(b"\0\0\0\0")
        with pytest.raises(TimeoutError):
            door.let_in([os.getpid() + 1], 4, time.monotonic() + 0.3)
        with contextlib.suppress(ConnectionResetError):  # it left unread what the caller said
            assert caller.recv(1) == b""


def test_a_member_is_let_in(door: Endpoint) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(door.address.path)
        caller.sendall(b"\1\0\0\0")
        hello, link = door.let_in([os.getpid()], 4, time.monotonic() + 10)
        link.close()
    assert hello == b"\1\0\0\0"


def test_what_a_killed_process_left_is_swept() -> None:
    child = os.fork()
    if child == 0:
        left = open_endpoint()
        os._exit(0 if left else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert any(f"-{child}-" in name for name in os.listdir("/dev/shm"))
    endpoint.sweep()
    assert not any(f"-{child}-" in name for name in os.listdir("/dev/shm"))
