"""Checkpoints that torch saves in a thread: on the group that the rank goes on to call on they meet whatever comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.fsdp import fully_shard

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind
from tests.torch_can import Can, needs

DEADLINE_S = 60.0
SOON_S = 8.0  # for what nobody can be certain of: all have come to the call, and got another's bytes
TRIES = 10


@pytest.fixture(scope="module")
def savers() -> Iterator[World]:
    needs(Can.SHARD, Can.SAVE_BESIDE)
    with World(2, preload=["torch.distributed.checkpoint", "torch.distributed.fsdp"]) as world:
        yield world


def model() -> nn.Module:
    made = nn.Linear(8, 8)
    fully_shard(made)
    return made


def loads_at_once(path: Path) -> None:
    made = model()
    state_dict_saver.async_save({"m": made.state_dict()}, checkpoint_id=path)
    state_dict_loader.load({"m": made.state_dict()}, checkpoint_id=path)


def goes_on_to_reduce(path: Path) -> None:
    made = model()
    saved: Any = state_dict_saver.async_save({"m": made.state_dict()}, checkpoint_id=path)
    for step in range(2000):
        dist.all_reduce(torch.ones(step % 3 + 1))
    saved.result()


@pytest.mark.parametrize("body", [loads_at_once, goes_on_to_reduce])
def test_whichever_way_it_shows_both_lines_of_both_ranks_are_told(
    savers: World, body: Callable[[Path], None], tmp_path: Path
) -> None:
    found: tuple[Finding, ...] = ()
    for attempt in range(TRIES):  # it may happen that the calls of both ranks come in one order, and even fit
        outcome = savers.run(body, tmp_path / f"saved-{attempt}", deadline=SOON_S)
        if found := outcome.findings:
            break
    (finding,) = found
    assert finding.kind is FindingKind.CALL_ORDERING, outcome.summary()
    assert finding.culprits in ((), (0, 1)), "at its first call nobody can say what comes of the other ranks'"
    first = body.__code__.co_firstlineno
    lines = [{site.line - first for site in side.sites if site} for side in finding.sides]
    assert {2} in lines
    assert {3} in lines or {4} in lines


def on_one_rank(path: Path) -> None:
    made = model()
    if dist.get_rank() == 0:
        saved: Any = state_dict_saver.async_save({"m": made.state_dict()}, checkpoint_id=path)
        saved.result()
    dist.barrier()


def test_a_checkpoint_that_one_rank_alone_saves_is_no_matter_of_threads(savers: World, tmp_path: Path) -> None:
    (finding,) = savers.run(on_one_rank, tmp_path / "saved", deadline=DEADLINE_S).findings
    assert finding.kind in (FindingKind.MISSING, FindingKind.EXTRA, FindingKind.CALL_ORDERING)
    assert not any("nothing orders the two" in line for line in finding.lines)


def waits_first(path: Path) -> None:
    made = model()
    saved: Any = state_dict_saver.async_save({"m": made.state_dict()}, checkpoint_id=path)
    saved.result()
    state_dict_loader.load({"m": made.state_dict()}, checkpoint_id=path)


def on_a_group_of_its_own(path: Path) -> None:
    made = model()
    saved: Any = state_dict_saver.async_save(
        {"m": made.state_dict()}, checkpoint_id=path, process_group=dist.new_group()
    )
    for step in range(200):
        dist.all_reduce(torch.ones(step % 3 + 1))
    saved.result()


@pytest.mark.parametrize("body", [waits_first, on_a_group_of_its_own])
def test_where_they_are_kept_apart_all_is_well(savers: World, body: Callable[[Path], None], tmp_path: Path) -> None:
    savers.run(body, tmp_path / "saved", deadline=DEADLINE_S).unwrap()
