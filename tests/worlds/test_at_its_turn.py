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


def one_of_a_batch_does_not_receive(rank: RankContext) -> None:
    """What a batch starts together has no order: rank 2 did not send because it had received."""
    ops = []
    for other in sorted({0, 1, 2} - {rank.index}):
        ops.append(dist.P2POp(dist.isend, torch.ones(3), other))
        if (rank.index, other) != (1, 2):
            ops.append(dist.P2POp(dist.irecv, torch.empty(3), other))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    dist.barrier()


def an_answer_that_looks_like_a_question(rank: RankContext) -> None:
    """Rank 1 answers with the tag of what it was asked: that one is usual, but not for what goes to rank 0."""
    if rank.index == 0:
        for other in (1, 2, 3):
            dist.send(torch.ones(1), other, tag=1)
        for other in (1, 2, 3):
            dist.recv(torch.empty(1), other, tag=2)
    else:
        dist.recv(torch.empty(1), 0, tag=1)
        dist.send(torch.ones(1), 0, tag=1 if rank.index == 1 else 2)


def with_both_neighbours(rank: RankContext) -> None:
    """The first one takes the last for its neighbour, both ways, which does nothing of the kind: of one half nobody
    could say whose mistake it is.
    """
    others = [rank.index + 1] if rank.index < 3 else []
    others.append((rank.index - 1) % 4)
    works = [(dist.isend(torch.ones(1), other), dist.irecv(torch.empty(1), other)) for other in others]
    for work in (each for both in works for each in both):
        assert work is not None
        work.wait()
    dist.barrier()


@pytest.mark.parametrize(
    ("body", "ranks", "culprit"),
    [
        (an_answer_that_looks_like_a_question, 4, 1),
        (a_sum_up_a_tree, 8, 5),
        (letters_are_numbered, 3, 0),
        (the_last_stage_expects_a_part_more, 4, 3),
        (one_of_a_batch_does_not_receive, 3, 1),
        (with_both_neighbours, 4, 0),
    ],
)
def test_whose_message_it_is(body: Body, ranks: int, culprit: int) -> None:
    finding = found(body, ranks)
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (culprit,)), str(finding)


def to_the_right(rank: RankContext) -> None:
    """The last one sends to the first, which does not expect it: a row that goes round, or a ring that stops."""
    work = dist.isend(torch.ones(1), (rank.index + 1) % 4)
    if rank.index > 0:
        dist.recv(torch.empty(1), rank.index - 1)
    assert work is not None
    work.wait()
    dist.barrier()


def test_of_a_row_that_goes_round_nobody_is_accused() -> None:
    finding = found(to_the_right, 4)
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.UNMATCHED, (), (0, 3))


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


def in_another_base(rank: RankContext) -> None:
    """The number of a key follows from the rank, though it is none: rank 1 writes it in hexadecimal."""
    number = rank.index + 29999
    rank.store.set(f"port/{number:x}" if rank.index == 1 else f"port/{number}", "…")
    for other in range(4):
        rank.store.wait([f"port/{29999 + other}"])


def test_what_was_set_where_others_set_theirs_is_told() -> None:
    finding = found(in_another_base, 4)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING_KEY, (1,))
    assert "/7530', which nobody gets, and not '" in finding.sides[0].did


def counted_among_those_that_answer(rank: RankContext) -> None:
    """Rank 1 names its answer by its place among those that answer; rank 0 gets all, and sets none."""
    if rank.index == 0:
        for other in (1, 2, 3):
            rank.store.get(f"answer/{other}")
    else:
        rank.store.set(f"answer/{0 if rank.index == 1 else rank.index}", "yes")


def says_the_second_twice(rank: RankContext) -> None:
    """Who sets them all waits for the third, too."""
    for turn in range(3):
        if rank.index == 0:
            rank.store.set(f"plan/{min(turn, 1)}", "…")
        rank.store.get(f"plan/{turn}")


@pytest.mark.parametrize(
    ("body", "ranks", "culprit"),
    [
        (votes_before_the_outcome, 4, 2),
        (a_round_too_early, 3, 1),
        (counted_among_those_that_answer, 4, 1),
        (says_the_second_twice, 3, 0),
    ],
)
def test_whose_key_it_is(body: Body, ranks: int, culprit: int) -> None:
    finding = found(body, ranks)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING_KEY, (culprit,)), str(finding)


# ---------------------------------------------------------------------------------------------------- calls


def one_sum_less_in_a_round(rank: RankContext) -> None:
    """Rank 2 has seen one of its values before, and does not ask again."""
    known = set[int]()
    for step in range(12):
        value = 4 if (rank.index, step) == (2, 9) else step
        if value not in known:
            dist.all_reduce(torch.ones(1))
        known.add(value)
        if step % 4 == 3:
            dist.barrier()


def test_so_many_calls_were_made_in_each_round_before() -> None:
    finding = found(one_sum_less_in_a_round, 4)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (2,))


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
