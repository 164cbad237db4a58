"""Files that ranks look for until the deadline: whose fault it is that nobody makes them, where that can be said."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.worlds.test_stores import marks

DEADLINE_S = 4.0  # by then all look for a while, on a busy machine too
Body = Callable[[Path], None]


def wait_for(*paths: Path) -> None:
    while not all(path.exists() for path in paths):  # looks
        time.sleep(0.01)  # looks


def one_does_not_say_so(directory: Path) -> None:
    rank = dist.get_rank()
    if rank != 2:
        (directory / f"ready-{rank}").touch()
        wait_for(*(directory / f"ready-{other}" for other in range(4)))
    dist.barrier()  # missed


def one_has_returned(directory: Path) -> None:
    rank = dist.get_rank()
    draft = directory / f"draft-{rank}"
    draft.touch()
    if rank == 2:
        return
    os.replace(draft, directory / f"part-{rank}")
    wait_for(*(directory / f"part-{other}" for other in range(4)))


def in_the_second_round(directory: Path) -> None:
    rank = dist.get_rank()
    for epoch in range(2):
        if rank != 2 or not epoch:
            (directory / f"epoch {epoch} rank {rank}").touch()
        wait_for(*(directory / f"epoch {epoch} rank {other}" for other in range(4) if rank != 2 or not epoch))
    dist.barrier()  # missed


def one_writes_elsewhere(directory: Path) -> None:
    rank = dist.get_rank()
    (directory / ("other" if rank == 2 else "parts")).mkdir(exist_ok=True)
    (directory / ("other" if rank == 2 else "parts") / f"{rank}.json").write_text("{}")
    if rank == 2:
        dist.barrier()  # missed
    while len(os.listdir(directory / "parts")) < 4:  # looks
        time.sleep(0.01)  # looks
    dist.barrier()


@pytest.mark.parametrize("body", [one_does_not_say_so, one_has_returned, in_the_second_round, one_writes_elsewhere])
def test_who_has_made_none_is_missed(four: World, tmp_path: Path, body: Body) -> None:
    (found,) = four.run(body, tmp_path, deadline=DEADLINE_S).findings
    assert (found.kind, found.culprits) == (FindingKind.STUCK_RANK, (2,))
    assert {rank for side in found.sides for rank in side.ranks} == {0, 1, 2, 3}
    if body is not one_has_returned:
        assert marks(found)[0] == {"missed"}
    assert marks(found)[1] == {"looks"}


def one_looks_for_its_own(directory: Path) -> None:
    rank = dist.get_rank()
    if rank != 2:
        (directory / f"done-{rank}").touch()
    wait_for(*(directory / f"done-{other}" for other in range(4)))


def test_who_looks_for_its_own_as_all_do(four: World, tmp_path: Path) -> None:
    (found,) = four.run(one_looks_for_its_own, tmp_path, deadline=DEADLINE_S).findings
    assert (found.kind, found.culprits) == (FindingKind.STUCK_RANK, (2,))
    assert [side.ranks for side in found.sides] == [(2,), (0, 1, 3)]


def padded_by_one(directory: Path) -> None:
    rank = dist.get_rank()
    (directory / f"shard_{rank}.pt").touch()
    wait_for(*(directory / (f"shard_{other:02d}.pt" if rank == 1 else f"shard_{other}.pt") for other in range(4)))
    dist.barrier()


def misspelt_by_one(directory: Path) -> None:
    rank = dist.get_rank()
    if rank == 0:
        (directory / "config.json").touch()
    wait_for(directory / ("confg.json" if rank == 1 else "config.json"))
    dist.barrier()


@pytest.mark.parametrize("body", [padded_by_one, misspelt_by_one])
def test_who_looks_for_another_name(four: World, tmp_path: Path, body: Body) -> None:
    (found,) = four.run(body, tmp_path, deadline=DEADLINE_S).findings
    assert (found.kind, found.culprits) == (FindingKind.STUCK_RANK, (1,))
    assert marks(found)[0] == {"looks"}
    assert "again and again, which nobody has made" in found.sides[0].did


def put_in_its_place_under_another_name(directory: Path) -> None:
    if dist.get_rank() == 1:
        (directory / "draft").touch()
        os.replace(directory / "draft", directory / "vocabulary_v2.txt")  # made
        dist.barrier()
    wait_for(directory / "vocabulary-v2.txt")


def made_under_another_name(directory: Path) -> None:
    if dist.get_rank() == 1:
        (directory / "vocabulary_v2.txt").touch()  # made
        dist.barrier()
    wait_for(directory / "vocabulary-v2.txt")


@pytest.mark.parametrize("body", [made_under_another_name, put_in_its_place_under_another_name])
def test_who_has_made_it_under_another_name(four: World, tmp_path: Path, body: Body) -> None:
    (found,) = four.run(body, tmp_path, deadline=DEADLINE_S).findings
    assert (found.kind, found.culprits) == (FindingKind.STUCK_RANK, (1,))
    assert marks(found)[:2] == [{"made"}, {"looks"}]


def of_which_nobody_knows(directory: Path) -> None:
    wait_for(directory / "go")


def each_its_own(directory: Path) -> None:
    wait_for(directory / "abcdef"[dist.get_rank()])


def few_write(directory: Path) -> None:
    """Rank 0 looks for a part of a rank that writes none."""
    rank = dist.get_rank()
    if rank < 2:
        (directory / f"part-{rank}").touch()
    wait_for(*(directory / f"part-{other}" for other in range(4 if rank == 0 else 2)))
    dist.barrier()


def one_looks_for_the_step_before(directory: Path) -> None:
    rank = dist.get_rank()
    (directory / f"step-1-part-{rank}").touch()
    wait_for(*(directory / f"step-{0 if rank == 3 else 1}-part-{other}" for other in range(4)))
    dist.barrier()


def it_waits_for_one_that_looks(directory: Path) -> None:
    """Rank 3 has left out a message, for which rank 2 waits."""
    rank = dist.get_rank()
    if rank == 2:
        dist.recv(torch.ones(1), 3)
    (directory / f"ready-{rank}").touch()
    wait_for(*(directory / f"ready-{other}" for other in range(4)))


def what_is_made_has_another_name(directory: Path) -> None:
    rank = dist.get_rank()
    if rank == 0:
        (directory / "encoder.ready").touch()
    wait_for(directory / ("decoder.ready" if rank == 0 else "encoder.ready"))
    dist.barrier()


def one_writes_more_than_another(directory: Path) -> None:
    """And one never writes."""
    rank = dist.get_rank()
    for part in range((2, 2, 1, 0)[rank]):
        (directory / f"{rank}-{part}").touch()
    while len(os.listdir(directory)) < 6:
        time.sleep(0.01)


def in_a_long_path(directory: Path) -> None:
    """Of which the ledger keeps the end."""
    deep = directory / "checkpoints-of-the-run-with-a-long-name" / "epoch-0001" / "shards-of-all-ranks"
    deep.mkdir(parents=True, exist_ok=True)
    (directory / "a").touch()
    (deep / f"ready-{dist.get_rank()}").touch()
    wait_for(deep / "go", directory / "b")


def replaced_under_another_name(directory: Path) -> None:
    if dist.get_rank() == 1:
        (directory / "draft").touch()
        os.replace(directory / "draft", directory / "decoder.bin")
    wait_for(directory / "encoder.bin")


@pytest.mark.parametrize(
    "body",
    [
        of_which_nobody_knows,
        each_its_own,
        few_write,
        one_looks_for_the_step_before,
        it_waits_for_one_that_looks,
        what_is_made_has_another_name,
        one_writes_more_than_another,
        in_a_long_path,
        replaced_under_another_name,
    ],
)
def test_ranks_speak_for_themselves_where_nobody_can_say(four: World, tmp_path: Path, body: Body) -> None:
    outcome = four.run(body, tmp_path, deadline=DEADLINE_S)
    assert not outcome.findings
    assert outcome.culprits


def slowly(directory: Path) -> None:
    rank = dist.get_rank()
    time.sleep(0.1 * rank)
    (directory / f"ready-{rank}").touch()
    wait_for(*(directory / f"ready-{other}" for other in range(4)))
    dist.barrier()


def test_who_comes_at_last_is_waited_for(four: World, tmp_path: Path) -> None:
    four.run(slowly, tmp_path, deadline=30).unwrap()
