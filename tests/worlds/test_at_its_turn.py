"""What others did at the same turn tells whose mistake it is, where no one way of going about it is everybody's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind, Side
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

DEADLINE_S = 60.0
Body = Callable[[RankContext], None]


def found(body: Body, ranks: int) -> Finding:
    with World(ranks) as world:
        (finding,) = world.run_job(Job(body, with_context=True), deadline=DEADLINE_S).findings
    return finding


# ---------------------------------------------------------------------------------------------------- messages


def a_sum_up_a_tree(rank: RankContext) -> None:
    """In each round half of them send to one that is as far away; rank 5 sends to the root at once."""
    total, apart = torch.ones(1), 1
    while apart < 8:
        if rank.index % (2 * apart) == apart:
            dist.send(total, 0 if rank.index == 5 else rank.index - apart)
            return
        part = torch.empty(1)
        dist.recv(part, rank.index + apart)
        total += part
        apart *= 2


def letters_are_numbered(rank: RankContext) -> None:
    """Over all that rank 0 writes to; once it leaves a number out."""
    number = 0
    for turn in range(4):
        for reader in (1, 2):
            if rank.index == 0:
                dist.send(torch.ones(1), reader, tag=number)
            elif rank.index == reader:
                dist.recv(torch.ones(1), 0, tag=number)
            number += 1
        number += rank.index == 0 and turn == 2


def the_last_stage_expects_a_part_more(rank: RankContext) -> None:
    """And each part has a tag of its own, so that nobody has seen the last one."""
    for part in range(4 if rank.index == 3 else 3):
        if rank.index > 0:
            dist.recv(torch.ones(2), rank.index - 1, tag=part)
        if rank.index < 3:
            dist.send(torch.ones(2), rank.index + 1, tag=part)
    dist.barrier()


@pytest.mark.parametrize(
    ("body", "ranks", "culprit"),
    [(a_sum_up_a_tree, 8, 5), (letters_are_numbered, 3, 0), (the_last_stage_expects_a_part_more, 4, 3)],
)
def test_whose_message_it_is(body: Body, ranks: int, culprit: int) -> None:
    finding = found(body, ranks)
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (culprit,)), str(finding)


# ---------------------------------------------------------------------------------------------------- keys


def votes_before_the_outcome(rank: RankContext) -> None:
    """The key that most wait for would be set, if the one that is to set it did not wait for another."""
    rank.store.set(f"{'votes' if rank.index == 2 else 'vote'}/{rank.index}", "yes")
    if rank.index == 0:
        for other in range(4):
            rank.store.get(f"vote/{other}")
        rank.store.set("outcome", "yes")
    rank.store.wait(["outcome"])


def a_round_too_early(rank: RankContext) -> None:
    """Rank 1 asks for the key of the next round, which comes after the barrier that the others wait in."""
    for turn in range(3):
        if rank.index == 0:
            rank.store.set(f"weights/{turn}", "…")
        rank.store.get(f"weights/{turn + (rank.index == 1 and turn == 2)}")
        dist.barrier()


@pytest.mark.parametrize(("body", "ranks", "culprit"), [(votes_before_the_outcome, 4, 2), (a_round_too_early, 3, 1)])
def test_whose_key_it_is(body: Body, ranks: int, culprit: int) -> None:
    finding = found(body, ranks)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING_KEY, (culprit,)), str(finding)


# ---------------------------------------------------------------------------------------------------- calls


def one_row_more_than_is_expected(rank: RankContext) -> None:
    """Of rank 1 for rank 2: which of the two has the wrong table rank 0, which waits for both, cannot say."""
    rows = [[1, 2, 1], [2, 2, 2], [1, 1, 3]]
    theirs = [each[rank.index] for each in rows]
    mine = [2, 2, 3] if rank.index == 1 else rows[rank.index]
    dist.all_to_all_single(torch.empty(sum(theirs)), torch.ones(sum(mine)), theirs, mine)


def test_who_waits_in_that_very_call_is_no_witness() -> None:
    finding = found(one_row_more_than_is_expected, 3)
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.SIZE, (), (1, 2))


def test_a_call_that_was_left_out_is_told_with_the_one_that_was_made() -> None:
    sides = (
        Side((2,), "leaves out all_reduce #3 on 'default'", (None,)),
        Side((2,), "enters barrier #3 on 'default'", (None,)),
        Side((0, 1), "enter all_reduce #3 on 'default'", (None, None)),
    )
    finding = Finding(FindingKind.MISSING, "all_reduce #3 on 'default'", "", sides, (2,))
    assert finding.lines == (
        "missing call: rank 2 leaves out all_reduce #3 on 'default', and enters barrier #3 on 'default'",
        "ranks 0, 1 enter all_reduce #3 on 'default'",
    )
