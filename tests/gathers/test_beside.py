"""The wait for one collective beside others: gloo's own, and as a world watches them."""

from __future__ import annotations

import datetime
import pathlib
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers.network.beside import wait_beside
from tests.gathers.attempts import TIMEOUT_S, wait_for

BRIEF = datetime.timedelta(seconds=0.3)


def bare(work: Any, watched: bool) -> Any:
    return work if watched else work.inner


@pytest.mark.parametrize("watched", [True, False])
def test_one_that_fails_ends_the_wait_for_another_which_goes_on(tmp_path: pathlib.Path, watched: bool) -> None:
    given_up = tmp_path / "given-up"

    def body() -> Any:
        patient, brief = dist.new_group(), dist.new_group(timeout=BRIEF)
        tensor, lost = torch.full((1,), float(dist.get_rank())), torch.zeros(1)
        if dist.get_rank() == 1:
            wait_for([given_up])
            dist.broadcast(tensor, 1, group=patient)
            return None
        first = bare(dist.broadcast(tensor, 1, group=patient, async_op=True), watched)
        second = bare(dist.broadcast(lost, 1, group=brief, async_op=True), watched)
        began = time.monotonic()
        with pytest.raises(RuntimeError) as caught:
            wait_beside(first, [first, second], began + TIMEOUT_S)
        seconds = time.monotonic() - began
        given_up.touch()
        wait_beside(first, [first], time.monotonic() + TIMEOUT_S)
        return str(caught.value), seconds, tensor.item()

    with rankdrill.World(2, contracts=False) as world:
        (said, seconds, received), _ = world.run(body).unwrap()
    assert "imed out" in said, said
    assert seconds < TIMEOUT_S / 2
    assert received == 1.0


def test_a_wait_in_turns_ends_with_its_time(tmp_path: pathlib.Path) -> None:
    given_up = tmp_path / "given-up"

    def body() -> Any:
        tensor = torch.full((1,), float(dist.get_rank()))
        if dist.get_rank() == 1:
            wait_for([given_up])
            dist.broadcast(tensor, 1)
            return None
        work = dist.broadcast(tensor, 1, async_op=True)
        with pytest.raises(RuntimeError, match="imed out"):
            wait_beside(work, [work], time.monotonic() + BRIEF.total_seconds())
        given_up.touch()
        work.wait()
        return tensor.item()

    with rankdrill.World(2) as world:
        assert world.run(body).unwrap() == [1.0, None]
