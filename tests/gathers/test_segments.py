"""Payloads in anonymous shared memory: independent, sealed, gone with their last user, and done without if need be."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_object, all_gather_shm, gather_object
from rankdrill.gathers.encoding.coding import PICKLED
from rankdrill.gathers.encoding.wire import FrameError, bytes_of, encode
from rankdrill.gathers.local import segment
from tests.gathers.attempts import TIMEOUT_S, Raised, all_alike, attempt, replaced

LARGE = 100_000
NONCE = b"nonce---"


def full(*_: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def shared(value: Any) -> list[Any]:
    return all_gather_shm(value, timeout=TIMEOUT_S)


def objects(value: Any) -> list[Any]:
    received: list[Any] = [None] * dist.get_world_size()
    all_gather_object(received, value, timeout=TIMEOUT_S)
    return received


def objects_to_last(value: Any) -> list[Any]:
    last = dist.get_world_size() - 1
    received = [None] * dist.get_world_size() if dist.get_rank() == last else None
    gather_object(value, received, dst=last, timeout=TIMEOUT_S)
    return received or []


def test_what_arrives_is_independent_of_everybodys(world: rankdrill.World) -> None:
    def body() -> Any:
        mine = torch.full((LARGE,), float(dist.get_rank()))
        received = shared({"tensor": mine})
        for one in received:
            one["tensor"].add_(100 * (1 + dist.get_rank()))
        mine.fill_(-1)
        dist.barrier()
        return [one["tensor"].unique().tolist() for one in received]

    for rank, seen in enumerate(world.run(body).unwrap()):
        assert seen == [[other + 100 * (1 + rank)] for other in range(4)]


def test_what_arrives_outlives_the_call_without_descriptors(world: rankdrill.World) -> None:
    def body() -> Any:
        shared(b"x" * LARGE)
        before = len(os.listdir("/proc/self/fd"))
        kept = [shared(torch.full((LARGE,), turn)) for turn in range(5)]
        return [one[3][7].item() for one in kept], len(os.listdir("/proc/self/fd")) - before

    assert all_alike(world.run(body).unwrap()) == ([0, 1, 2, 3, 4], 0)


@pytest.mark.parametrize("sizes", [(LARGE, 1, 1, 1), (1, LARGE, LARGE, 1), (0, 0, 0, 0), (LARGE,) * 4])
def test_every_mixture_of_sizes(world: rankdrill.World, sizes: tuple[int, ...]) -> None:
    assert all_alike(world.run(lambda: [len(one) for one in shared(b"x" * sizes[dist.get_rank()])]).unwrap()) == list(
        sizes
    )


@pytest.mark.parametrize("gather", [objects, objects_to_last])
@pytest.mark.parametrize("poor", [1, 4])
def test_without_shared_memory_payloads_go_over_the_network(
    world: rankdrill.World, gather: Callable[[Any], list[Any]], poor: int
) -> None:
    def body() -> Any:
        with replaced(os, "write", full, dist.get_rank() < poor):
            return [len(one) for one in gather(b"x" * (LARGE + dist.get_rank()))]

    assert world.run(body).unwrap()[3] == [LARGE, LARGE + 1, LARGE + 2, LARGE + 3]


def test_without_shared_memory_a_gather_through_it_fails_on_all_ranks(world: rankdrill.World) -> None:
    def body() -> Any:
        with replaced(os, "write", full, dist.get_rank() == 2):
            failed = attempt(shared, b"x" * LARGE)
        return failed, shared(b"y" * LARGE)[1][:1]

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks, after) == ("StorageError", (2,), b"y")
    assert "No space left on device" in failed.text


def test_ranks_of_several_machines_are_refused_by_name(world: rankdrill.World) -> None:
    def body() -> Any:
        # As if rank 3 had a /dev/shm of its own.
        from rankdrill.gathers.agreement import channel

        apart = dist.get_rank() == 3
        with replaced(channel, "is_visible", lambda *_: False, apart):
            fresh = dist.new_group([0, 1, 2, 3])
            return attempt(all_gather_shm, b"x" * LARGE, group=fresh, timeout=TIMEOUT_S)

    failed: Raised = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("StorageError", (3,))
    assert "another machine than rank 0" in failed.text
    assert "all_gather_object" in failed.text


def test_a_segment_is_sealed() -> None:
    made = segment.create(encode(b"x" * LARGE), NONCE)
    for change in (lambda: os.pwrite(made, b"y", 0), lambda: os.ftruncate(made, 10)):
        with pytest.raises(PermissionError):
            change()
    os.close(made)


def test_another_file_is_not_loaded(tmp_path: Any) -> None:
    payload = encode(b"x" * LARGE)
    me = os.getpid()
    planted = tmp_path / "planted"
    planted.write_bytes(payload.to_bytearray(NONCE))
    with open(planted) as file, pytest.raises((FrameError, OSError)):
        segment.load(me, file.fileno(), payload.nbytes, NONCE, PICKLED)
    made = segment.create(payload, NONCE)
    assert segment.load(me, made, payload.nbytes, NONCE, PICKLED) == b"x" * LARGE
    with pytest.raises(FrameError, match="not written by this call"):
        segment.load(me, made, payload.nbytes, b"another-", PICKLED)
    with pytest.raises(FrameError, match="not the segment"):
        segment.load(me, made, payload.nbytes - 1, NONCE, PICKLED)
    os.close(made)


def test_only_the_mapping_of_its_maker_writes_to_a_reserved_segment() -> None:
    payload = encode(b"x" * LARGE)
    made = segment.reserve(payload.nbytes)
    with pytest.raises(FrameError, match="not sealed"):
        segment.load(os.getpid(), made, payload.nbytes, NONCE, PICKLED)
    mine = segment.map_shared(made, payload.nbytes)
    payload.write_into(bytes_of(mine), NONCE)
    for change in (lambda: os.pwrite(made, b"y", 0), lambda: os.ftruncate(made, 10)):
        with pytest.raises(PermissionError):
            change()
    with pytest.raises((PermissionError, RuntimeError)):
        segment.map_shared(made, payload.nbytes)
    assert segment.load(os.getpid(), made, payload.nbytes, NONCE, PICKLED) == b"x" * LARGE
    os.close(made)
