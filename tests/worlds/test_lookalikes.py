"""Programs that look like another mistake than they make: nobody innocent is accused, and no other mistake is told."""

from __future__ import annotations

import fcntl
import tempfile
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

DEADLINE_S = 60.0


def told(outcome: Outcome) -> tuple[FindingKind, tuple[int, ...]]:
    (finding,) = outcome.findings
    return finding.kind, finding.culprits


def test_one_batch_less_is_no_other_order(four: World) -> None:
    """The last element is told by its name, as in a loop over a dictionary; but here one rank has fewer before it."""

    def body() -> None:
        for epoch in range(4):
            batches = range(3 if dist.get_rank() == 1 and epoch == 2 else 4)
            for batch in [*batches, "evaluation"]:
                if batch == "evaluation":
                    dist.broadcast(torch.ones(1), src=0)
                else:
                    dist.all_reduce(torch.ones(4))

    assert told(four.run(body, deadline=DEADLINE_S)) == (FindingKind.MISSING, (1,))


def test_who_sweeps_its_row_once_more_is_not_on_another_axis() -> None:
    """Ranks 0 and 1 are in their column already, which 2 and 3 leave out; 4 and 5 come to it a turn later."""

    def body() -> None:
        rows = [dist.new_group([row * 2, row * 2 + 1]) for row in range(3)]
        columns = [dist.new_group([column, column + 2, column + 4]) for column in range(2)]
        me = dist.get_rank()
        row, column = rows[me // 2], columns[me % 2]
        schedule = [row] * (1 if me < 2 else 2) + [column]
        if me in (2, 3):
            schedule.pop()
        for group in schedule:
            dist.all_reduce(torch.ones(2), group=group)

    with World(6) as world:
        kind, culprits = told(world.run(body, deadline=DEADLINE_S))
    assert kind is FindingKind.MISSING
    assert set(culprits) <= {2, 3}


def test_who_has_rounds_of_its_own_beside_a_wrong_size_left_nothing_out(four: World) -> None:
    def body() -> None:
        alone = [dist.new_group(ranks) for ranks in ([0, 1], [2], [3])]
        pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        me = dist.get_rank()
        for step in range(4):
            for _ in range(2 if me == 2 and step == 2 else 1):
                dist.all_reduce(torch.ones(2), group=alone[max(me - 1, 0)])
            size = 7 if me % 2 else 12
            dist.all_reduce(torch.ones(size + (me == 0 and step == 2)), group=pairs[me % 2])

    assert told(four.run(body, deadline=DEADLINE_S)) == (FindingKind.SIZE, ())


def chain(links: tuple[int, ...], odd: int, fewer_sent: int, more_taken: int) -> None:
    """Each link has a number of messages of its own, and then one goes back."""
    me, size = dist.get_rank(), dist.get_world_size()
    mine = links[me] - fewer_sent * (me == odd) if me < size - 1 else 0
    theirs = links[me - 1] + more_taken * (me == odd) if me else 0
    block = torch.ones(4)
    for turn in range(max(mine, theirs)):
        if turn < theirs:
            dist.recv(block, src=me - 1)
        if turn < mine:
            dist.send(block, dst=me + 1)
    if me < size - 1:
        dist.recv(block, src=me + 1)
    if me:
        dist.send(block, dst=me - 1)


@pytest.mark.parametrize(
    ("links", "odd", "fewer_sent", "more_taken"),
    [pytest.param((3, 2, 2), 0, 1, 0, id="one-too-few"), pytest.param((1, 2, 2), 1, 0, 1, id="one-too-many")],
)
def test_links_of_a_number_of_their_own_say_nothing_of_another_link(
    four: World, links: tuple[int, ...], odd: int, fewer_sent: int, more_taken: int
) -> None:
    _, culprits = told(four.run(chain, links, odd, fewer_sent, more_taken, deadline=DEADLINE_S))
    assert culprits in ((), (odd,))


def test_a_first_message_is_none_too_many(four: World) -> None:
    """Rank 2 calls once more before it takes what rank 1 sends it for the first time; others are at another group."""

    def body() -> None:
        everybody = dist.new_group([0, 1, 2, 3])
        me = dist.get_rank()
        for _ in range(3):
            if me == 0:
                dist.send(torch.ones(3), dst=1)
            if me == 1:
                dist.recv(torch.ones(3), src=0)
            dist.reduce(torch.ones(1), dst=0)
        dist.all_reduce(torch.ones(1))
        if me == 2:
            dist.broadcast(torch.ones(7), src=2)
        if me == 1:
            dist.send(torch.ones(1), dst=2, tag=1)
        if me == 2:
            dist.recv(torch.ones(1), src=1, tag=1)
        dist.barrier(group=everybody)

    kind, culprits = told(four.run(body, deadline=DEADLINE_S))
    assert (kind, culprits) == (FindingKind.EXTRA, (2,))


def turned_round(rank: RankContext) -> None:
    if rank.index == 1:
        rank.store.set("block/1/0", "there")
    elif rank.index > 1:
        rank.store.wait(["block/0/1"])
        rank.store.wait(["block/1/0"])


def test_a_key_of_the_same_parts_may_be_another_key(fresh: World) -> None:
    """Block 1/0 is there, and has not been asked for yet; 0/1 is what rank 0 has forgotten."""
    kind, culprits = told(fresh.run_job(Job(turned_round, with_context=True), deadline=DEADLINE_S))
    assert kind is FindingKind.MISSING_KEY
    assert 1 not in culprits


def test_two_that_do_it_in_two_orders_are_both_told() -> None:
    """Who should have come to the message first, nobody else shows."""

    def body() -> None:
        part = torch.ones(2)
        if dist.get_rank():
            dist.recv(part, 0)
            dist.barrier()
        else:
            dist.barrier()
            dist.send(part, 1)

    with World(2) as two:
        assert told(two.run(body, deadline=DEADLINE_S)) == (FindingKind.DEADLOCK, ())


def test_a_first_message_of_another_size_may_be_meant_so() -> None:
    """The only other pair has a size of its own."""

    def body() -> None:
        me = dist.get_rank()
        if me in (0, 2):
            dist.send(torch.ones(4 if me else 8), me + 1)
        else:
            dist.recv(torch.ones(8 if me == 1 else 6), me - 1)

    with World(4) as four:
        assert told(four.run(body, deadline=DEADLINE_S)) == (FindingKind.SIZE, ())


def test_splits_that_two_disagree_about_say_nothing_of_who_is_right() -> None:
    """Neither expects just what it sends, and no number is that of all others."""

    def body() -> None:
        plan = [[1, 2, 3], [4, 3, 1], [2, 5, 2]]  # from each, to each
        me = dist.get_rank()
        expects = [row[me] for row in plan]
        expects[2] += me == 1
        sends = plan[me]
        dist.all_to_all_single(torch.ones(sum(expects)), torch.ones(sum(sends)), expects, sends)

    with World(3) as three:
        kind, culprits = told(three.run(body, deadline=DEADLINE_S))
    assert (kind, culprits) == (FindingKind.SIZE, ())


def test_a_tag_that_goes_both_ways_says_nothing_of_one_that_does_not(four: World) -> None:
    """Others have one tag for both directions, and the two one of their own each."""

    def body() -> None:
        me, value = dist.get_rank(), torch.ones(1)
        if me in (0, 1):
            dist.send(value, 1, tag=5) if me == 0 else dist.recv(value, 0, tag=6)
        elif me == 2:
            dist.send(value, 3, tag=7)
            dist.recv(value, 3, tag=7)
        else:
            dist.recv(value, 2, tag=7)
            dist.send(value, 2, tag=7)

    assert told(four.run(body, deadline=DEADLINE_S)) == (FindingKind.UNMATCHED, ())


def test_who_is_past_the_collective_that_its_peer_waits_in_has_done_nothing_too_often(four: World) -> None:
    """A root waits in its scatter for rank 2, to which it has not sent; rank 0 has got its part, and gone on."""

    def body() -> None:
        me, value, parts = dist.get_rank(), torch.ones(2), [torch.ones(2)] * 4
        dist.scatter(value, parts if me == 1 else None, src=1)
        if me == 1:
            dist.send(value, 0)
        if me == 0:
            dist.recv(value, 1)
        dist.all_gather_object([None] * 4, me)
        if me == 2:
            dist.recv(value, 1)
        for _ in range(1):
            dist.scatter(value, parts if me == 1 else None, src=1)
            if me == 1:
                dist.send(value, 0)
            if me == 0:
                dist.recv(value, 1)
            dist.barrier()

    kind, culprits = told(four.run(body, deadline=DEADLINE_S))
    assert kind in (FindingKind.UNMATCHED, FindingKind.DEADLOCK)
    assert set(culprits) <= {1, 2}


def exchange_of_halos(wrong: int, changed: int) -> tuple[FindingKind, tuple[int, ...]]:
    """Both ways alike on all ranks, but that rank `wrong` sends rank 0 `changed`."""
    plan = [[1, 2, 3], [2, 4, 5], [3, 5, 6]]

    def body() -> None:
        expects, sends = list(plan[dist.get_rank()]), list(plan[dist.get_rank()])
        if dist.get_rank() == wrong:
            sends[0] = changed
        dist.all_to_all_single(torch.zeros(sum(expects)), torch.zeros(sum(sends)), expects, sends)

    with World(3) as three:
        return told(three.run(body, deadline=DEADLINE_S))


def test_where_all_expect_what_they_send_who_does_is_right() -> None:
    kind, culprits = exchange_of_halos(1, 9)
    assert kind is FindingKind.SIZE
    assert culprits in ((), (1,))


def test_who_gets_more_behind_the_collective_waits_for_what_was_left_out(four: World) -> None:
    """Rank 1 has not sent to rank 0 before the barrier; what it sends behind that is for rank 2."""

    def body() -> None:
        me, value = dist.get_rank(), torch.ones(2)
        if me == 0:
            dist.recv(value, 1)
            dist.barrier()
            dist.send(value, 1)
            dist.recv(value, 3)
        elif me == 1:
            dist.barrier()
            dist.recv(value, 0)
            dist.send(value, 2)
        else:
            dist.barrier()
            dist.recv(value, me - 1)
            dist.send(value, (me + 1) % 4)

    kind, culprits = told(four.run(body, deadline=DEADLINE_S))
    assert kind in (FindingKind.DEADLOCK, FindingKind.UNMATCHED)
    assert culprits in ((), (1,))


def test_a_loop_that_is_one_too_long_is_not_its_peers_mistake() -> None:
    def body() -> None:
        me, value = dist.get_rank(), torch.ones(2)
        if me == 0:
            for _ in range(3):
                dist.recv(value, src=1)
            dist.barrier()
            dist.recv(value, src=1)
        elif me == 1:
            dist.send(value, 0)
            dist.send(value, 0)
            dist.barrier()
            dist.send(value, 0)
        else:
            dist.barrier()

    with World(3) as three:
        _, culprits = told(three.run(body, deadline=DEADLINE_S))
    assert culprits in ((), (0,))


def test_who_only_looks_on_need_not_count_itself() -> None:
    def body(rank: RankContext) -> None:
        if rank.index in (1, 2, 3):
            rank.store.add("ready", 1)
        if rank.index:
            rank.store.get("go")

    with World(5) as five:
        kind, culprits = told(five.run_job(Job(body, with_context=True), deadline=DEADLINE_S))
    assert kind is FindingKind.MISSING_KEY
    assert 4 not in culprits


def test_a_key_for_all_is_not_taken_for_ones_own(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        if rank.index == 0:
            for other in (1, 2, 3):
                rank.store.set(f"cfg/{other}", "1")
        elif rank.index == 3:
            rank.store.get("cfg/head")
            rank.store.get("cfg/3")
        else:
            rank.store.get(f"cfg/{rank.index}")

    kind, culprits = told(fresh.run_job(Job(body, with_context=True), deadline=DEADLINE_S))
    assert kind is FindingKind.MISSING_KEY
    assert 3 not in culprits


def test_a_group_that_is_made_once_more_is_nobody_elses_mistake(four: World) -> None:
    def body() -> None:
        dist.new_group([0, 1])
        dist.new_group([2, 3])
        if dist.get_rank() < 2:
            dist.new_group([0, 1])

    _, culprits = told(four.run(body, deadline=DEADLINE_S))
    assert culprits in ((), (0, 1))


def test_what_a_stage_hands_on_need_not_be_as_large_as_what_it_got() -> None:
    """Whether the second stage sends too little, or the third expects too much, its own input does not say."""

    def body() -> None:
        me = dist.get_rank()
        if me:
            dist.recv(torch.empty(8), src=me - 1)
        if me < 2:
            dist.send(torch.ones(8 if me == 0 else 4), dst=me + 1)

    with World(3) as three:
        kind, culprits = told(three.run(body, deadline=DEADLINE_S))
    assert (kind, culprits) == (FindingKind.SIZE, ())


def test_who_returns_where_it_should_is_not_short_of_what_another_one_sends(four: World) -> None:
    """What is further down is for rank 2 alone: rank 0 waits once too often, or rank 1 sends once too seldom."""

    def body() -> None:
        me, value = dist.get_rank(), torch.ones(3)
        if me == 1:
            dist.send(value, 0)
            return
        if me == 2:
            dist.send(value, 0)
        if me == 0:
            dist.recv(value, src=2)
            dist.recv(value, src=1)
            dist.recv(value, src=1)

    _, culprits = told(four.run(body, deadline=DEADLINE_S))
    assert culprits in ((), (0,))


def test_two_files_that_two_ranks_lock_crosswise_say_nothing_of_who_is_wrong(fresh: World) -> None:
    """The others lock neither, or both in turn on other files."""

    def body(rank: RankContext, directory: str) -> None:
        names = ["weights", "table"][:: -1 if rank.index == 1 else 1]
        opened = [(Path(directory) / name).open("w") for name in names]
        dist.barrier()
        if rank.index in (0, 1):
            for file in opened:
                fcntl.flock(file, fcntl.LOCK_EX)
                time.sleep(0.2)
        dist.barrier()

    with tempfile.TemporaryDirectory() as directory:
        kind, culprits = told(fresh.run_job(Job(body, (directory,), with_context=True), deadline=DEADLINE_S))
    assert (kind, culprits) == (FindingKind.DEADLOCK, ())
