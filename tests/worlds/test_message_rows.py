"""Messages that do not meet, of which one is wrong by how its own line went on: its tags, or who is next."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 60.0


def parts_of_each() -> None:
    if dist.get_rank() == 0:
        parts = torch.zeros(4, 2)
        assert all(dist.recv(parts[at], src=peer) == peer for at, peer in enumerate((1, 1, 2, 2)))
    elif dist.get_rank() < 3:
        for _ in range(2 if dist.get_rank() == 2 else 1):
            dist.send(torch.ones(2), dst=0)


def test_who_would_come_to_the_next_one_in_a_comprehension_has_named_the_right_peer(four: World) -> None:
    """What rank 2 sends is not what rank 0 waits for: its turn has not come."""
    (finding,) = four.run(parts_of_each, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits != (0,)) == (FindingKind.UNMATCHED, True)
    assert set(finding.ranks) <= {0, 1}


def two_streams(odd: int) -> None:
    """Each has a line and tags of its own, which count; in the last step one rank has left the row."""
    me = dist.get_rank()
    if me > 1:
        dist.send(torch.ones(1), dst=3) if me == 2 else dist.recv(torch.ones(1), src=2)
        return
    for step in range(4):
        wrong = 50 if step == 3 and me == odd else 0
        if me == 0:
            dist.send(torch.ones(2), dst=1, tag=step)
            dist.send(torch.ones(3), dst=1, tag=100 + step + wrong)
        else:
            dist.recv(torch.empty(2), src=0, tag=step)
            dist.recv(torch.empty(3), src=0, tag=100 + step + wrong)


@pytest.mark.parametrize("odd", [0, 1])
def test_a_tag_that_leaves_the_row_of_its_line_is_the_wrong_one(two: World, four: World, odd: int) -> None:
    (finding,) = four.run(two_streams, odd, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.argument, finding.culprits) == (FindingKind.UNMATCHED, "tag", (odd,))
    (finding,) = two.run(two_streams, odd, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.argument, finding.culprits) == (FindingKind.UNMATCHED, "tag", ())


def takes_from_both() -> None:
    for _ in range(3):
        for peer in (1, 2):
            dist.recv(torch.ones(2), src=peer)


def spares_itself_one(odd: int) -> None:
    if dist.get_rank() == 0:
        takes_from_both()
        return
    for turn in range(3):
        if turn == 1 and dist.get_rank() == odd:
            continue
        dist.send(torch.ones(2), dst=0)


def has_fewer_rounds(odd: int) -> None:
    if dist.get_rank() == 0:
        takes_from_both()
        return
    for _ in range(2 if dist.get_rank() == odd else 3):
        if torch.ones(1).item():
            dist.send(torch.ones(2), dst=0)


@pytest.mark.parametrize("odd", [1, 2])
def test_who_may_go_past_its_line_has_sent_less_than_the_other_one(odd: int) -> None:
    with World(3) as three:
        (finding,) = three.run(spares_itself_one, odd, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (odd,))


def test_who_has_fewer_rounds_as_its_rank_says_need_not_be_wrong() -> None:
    with World(3) as three:
        (finding,) = three.run(has_fewer_rounds, 1, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, ())


def sends_on_too_much(late: int) -> None:
    me, size = dist.get_rank(), dist.get_world_size()
    if me == late:
        time.sleep(0.2)  # for the others to be there
    many = 4 // (1 if me == 1 else 2)  # which a source might cut to measure
    works = [dist.isend(torch.ones(many), (me + 1) % size), dist.irecv(torch.ones(2), (me - 1) % size)]
    for work in works:
        assert work is not None
        work.wait()


@pytest.mark.parametrize("late", [1, 2])
def test_in_a_ring_of_three_it_is_the_one_whoever_notices(late: int) -> None:
    with World(3) as three:
        (finding,) = three.run(sends_on_too_much, late, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.SIZE, (1,))


def goes_round_where_a_row_ends(odd_steps: int) -> None:
    """A row of ranks, each of which sends what is next to the one before; the first has nobody before it."""
    me, size = dist.get_rank(), dist.get_world_size()
    for step in range(3):
        works = [dist.irecv(torch.empty(2), me + 1, tag=2)] if me < size - 1 else []
        if me > 0 or step >= 3 - odd_steps:
            works.append(dist.isend(torch.ones(2), (me - 1) % size, tag=2))
        for work in works:
            assert work is not None
            work.wait()
    dist.barrier()


def test_who_comes_once_to_a_line_to_which_all_others_come_each_time(four: World) -> None:
    (finding,) = four.run(goes_round_where_a_row_ends, 1, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (0,))


def test_whether_a_row_or_a_ring_was_meant_nobody_knows_where_it_goes_round_each_time(four: World) -> None:
    (finding,) = four.run(goes_round_where_a_row_ends, 3, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, ())


def answers_with_objects(odd_turn: int) -> None:
    """`send_object_list` makes several messages, and is a call of the user's for all that."""
    me = dist.get_rank()
    for turn in range(3):
        if me == 0:
            dist.send_object_list([turn], dst=1)
            dist.recv_object_list([None], src=1)
        else:
            dist.recv_object_list([None], src=0)
            if turn != odd_turn:
                dist.send_object_list([turn], dst=0)


def test_an_answer_of_objects_that_is_left_out_is_told_as_any_other(two: World) -> None:
    (finding,) = two.run(answers_with_objects, 1, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (1,))
