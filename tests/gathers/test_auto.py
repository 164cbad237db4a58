"""gather: which way it takes, that all ranks take the same, and that it says so."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import gather
from rankdrill.gathers.transfer import moves as transfer
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt, replaced

LARGE = 100_000


def explained(nbytes: int, path: str = "auto", directory: str | None = None) -> Any:
    value = bytes([dist.get_rank()]) * nbytes
    values, why = gather(value, path, directory=directory, explain=True, timeout=TIMEOUT_S)
    assert values == [bytes([rank]) * nbytes for rank in range(4)]
    return why


def test_small_payloads_travel_with_the_agreement(world: rankdrill.World) -> None:
    assert all_alike(world.run(explained, 10).unwrap()).startswith("with the agreement: no payload has more than ")


def test_large_ones_through_memory_or_over_the_network(world: rankdrill.World, line: str) -> None:
    why = all_alike(world.run(explained, LARGE).unwrap())
    assert why.startswith("shared memory: 4 ranks on one machine" if line == "local" else "a broadcast per payload")
    assert "4 of 4 payloads are large" in why


@pytest.mark.parametrize("path", ["shm", "network", "files"])
def test_what_is_asked_for_is_done(world: rankdrill.World, tmp_path: pathlib.Path, path: str) -> None:
    for nbytes in (LARGE, 2 * LARGE):
        assert "as asked for" in all_alike(world.run(explained, nbytes, path, str(tmp_path)).unwrap())
    assert list(tmp_path.iterdir()) == []


def test_more_large_payloads_than_are_sent_at_once(world: rankdrill.World) -> None:
    def body() -> Any:
        with replaced(transfer, "IN_FLIGHT", 3):
            return explained(LARGE, "network")

    assert "4 of 4 payloads are large" in all_alike(world.run(body).unwrap())


def test_one_large_payload(world: rankdrill.World) -> None:
    def body() -> list[int]:
        return [len(one) for one in gather(b"x" * (LARGE if dist.get_rank() == 2 else 1), timeout=TIMEOUT_S)]

    assert all_alike(world.run(body).unwrap()) == [1, 1, LARGE, 1]


@pytest.mark.parametrize("path", ["pigeon", "cuda"])
def test_a_path_that_cannot_be_is_refused_on_all_ranks(world: rankdrill.World, path: str) -> None:
    if path == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")

    failed = all_alike(world.run(lambda: attempt(gather, 1, path, timeout=TIMEOUT_S)).unwrap())
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (0, 1, 2, 3))
    assert f"path='{path}'" in failed.text


def test_ranks_that_ask_for_different_paths(world: rankdrill.World) -> None:
    def body() -> Any:
        failed = attempt(gather, 1, "shm" if dist.get_rank() == 3 else "network", timeout=TIMEOUT_S)
        return failed, gather(1, timeout=TIMEOUT_S)

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks, after) == ("ArgumentMismatch", (3,), [1, 1, 1, 1])


def test_a_world_of_one() -> None:
    assert gather({"a": 1}, explain=True)[0] == [{"a": 1}]
