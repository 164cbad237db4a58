"""A rank that leaves while another is still connecting to it: who left is told, not who failed of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind, name_ranks
from rankdrill.diagnosis.left_early import said_while_connecting
from rankdrill.step import Kind
from rankdrill.worlds import Outcome, Status
from tests.worlds.leaving import connect_late, connect_never

DEADLINE_S = 60.0
SHORT_S = 10.0  # of which all is waited for: the last one may still come
TRIES = 10  # of a race that a busy machine may decide otherwise


def destroys() -> None:
    dist.destroy_process_group()  # leaves


def exits() -> None:
    os._exit(0)  # leaves


def one_leaves(directory: Path, size: int, leave: Callable[[], None]) -> Outcome:
    """A run in which somebody left while another was still connecting to it."""
    for number in range(TRIES):
        (directory / str(number)).mkdir()
        with World(3, init=False) as world:
            outcome = world.run(connect_late, str(directory / str(number)), size, leave, deadline=DEADLINE_S)
        if any(said_while_connecting(rank.error) for rank in outcome.ranks):
            return outcome
    raise AssertionError(f"in {TRIES} runs nobody's connecting failed; the last: {outcome.summary()}")


@pytest.mark.parametrize(("leave", "how"), [(destroys, "destroy_process_group()"), (exits, "os._exit")])
def test_who_left_before_all_were_connected_is_told(leave: Callable[[], None], how: str, tmp_path: Path) -> None:
    outcome = one_leaves(tmp_path, 3, leave)
    (finding,) = outcome.findings
    late = [rank.rank for rank in outcome.ranks if rank.status is Status.RAISED]
    left = next(rank for rank in outcome.ranks if rank.value == "left" or rank.status is Status.DIED)
    assert (finding.kind, finding.culprits) == (FindingKind.LOST_RANK, (left.rank,))
    assert outcome.culprits == (left.rank,)
    assert late
    assert set(late) <= set(outcome.victims)
    still = f"{name_ranks(late)} still {'connects' if len(late) == 1 else 'connect'}"
    assert f"rank {left.rank} leaves by {how} while {still}: a barrier is missing before it" in str(finding)
    site = finding.sides[0].sites[0]
    assert site is not None
    assert "# leaves" in Path(site.file).read_text().splitlines()[site.line - 1]


@pytest.mark.parametrize("local", [None, False, True], ids=["init", "new_group", "use_local_synchronization"])
def test_who_left_one_that_waits_for_ever_is_told(local: bool | None, tmp_path: Path) -> None:
    """gloo does not always fail where a connection breaks: it waits, for as long as it was told to."""
    with World(3, init=False) as world:
        outcome = world.run(connect_never, str(tmp_path), local, deadline=SHORT_S)
    (finding,) = outcome.findings
    left = next(rank for rank in outcome.ranks if rank.value == "left")
    assert (finding.kind, finding.culprits) == (FindingKind.LOST_RANK, (left.rank,))
    assert f"rank {left.rank} leaves by destroy_process_group() while " in str(finding)


def test_who_waits_for_all_before_it_leaves_is_right(tmp_path: Path) -> None:
    with World(3, init=False) as world:
        outcome = world.run(connect_late, str(tmp_path), 3, None, deadline=DEADLINE_S)
    assert outcome.unwrap() == ["left"] * 3
    for rank in outcome.ranks:
        (left,) = [record for record in rank.ledger.records if record.step.op == "destroy_process_group"]
        assert (left.step.kind, left.step.target) == (Kind.GROUP, "default")


def test_of_a_group_that_is_none_of_the_worlds_nobody_knows_who_left(tmp_path: Path) -> None:
    """Two ranks of three meet by themselves: no ledger says who is in it."""
    outcome = one_leaves(tmp_path, 2, destroys)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.LOST_RANK, ())
    assert "loses a connection while a group is made; which rank closed it cannot be known" in str(finding)
