"""What came first on each rank, its messages or a collective: who alone has it the other way round than all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run


class Stage:
    """Of a pipeline, which counts its samples: the messages come first, or the count, and on rank 2 maybe not."""

    def __init__(self, rank: RankContext) -> None:
        self.rank = rank
        self.activations, self.count = torch.ones(3), torch.ones(1)

    def hand_on(self) -> None:
        if self.rank.index:
            dist.recv(self.activations, src=self.rank.index - 1)  # message
        if self.rank.index < 3:
            dist.send(self.activations, dst=self.rank.index + 1)  # message

    def tally(self) -> None:
        dist.all_reduce(self.count)  # tally

    def gossip(self) -> None:
        """Between two of them, behind all else."""
        if self.rank.index == 0:
            dist.send(self.count, dst=3, tag=7)
        if self.rank.index == 3:
            dist.recv(self.count, src=0, tag=7)


def counts_before_it_hands_on(rank: RankContext) -> None:
    stage = Stage(rank)
    if rank.index == 2:
        stage.tally()
        stage.hand_on()
    else:
        stage.hand_on()
        stage.tally()


def hands_on_before_it_counts(rank: RankContext) -> None:
    stage = Stage(rank)
    if rank.index == 2:
        stage.hand_on()
    stage.tally()
    if rank.index != 2:
        stage.hand_on()


def has_its_list_turned_round(rank: RankContext) -> None:
    stage = Stage(rank)
    steps = [stage.hand_on, stage.tally]
    if rank.index == 2:
        steps.reverse()
    for step in steps:
        step()


def turns_round_in_its_second_round(rank: RankContext) -> None:
    stage = Stage(rank)
    phases = {"a": stage.tally, "b": stage.hand_on}
    for turn in range(2):
        for name in sorted(phases, reverse=rank.index == 2 and turn == 1):
            phases[name]()


def receive(stage: Stage) -> None:
    if stage.rank.index:
        dist.recv(stage.activations, src=stage.rank.index - 1)


def send_on(stage: Stage, activations: torch.Tensor) -> None:
    if stage.rank.index < 3:
        dist.send(activations, dst=stage.rank.index + 1)


def counts_in_a_branch_of_its_own(rank: RankContext) -> None:
    stage = Stage(rank)
    receive(stage)
    if rank.index == 2:
        stage.tally()
        send_on(stage, stage.activations.clamp(max=1))
    else:
        send_on(stage, stage.activations)
        stage.tally()


def counts_by_a_line_further_up(rank: RankContext) -> None:
    stage = Stage(rank)
    eager = rank.index == 2
    receive(stage)
    if eager:
        stage.tally()
    send_on(stage, stage.activations)
    if not eager:
        stage.tally()


@pytest.mark.parametrize(
    "body",
    [
        *(counts_before_it_hands_on, hands_on_before_it_counts),
        *(has_its_list_turned_round, turns_round_in_its_second_round),
        *(counts_in_a_branch_of_its_own, counts_by_a_line_further_up),
    ],
)
def test_who_has_it_the_other_way_round_is_to_blame(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, (2,))


def leaves_its_messages_out(rank: RankContext) -> None:
    stage = Stage(rank)
    if rank.index != 2:
        stage.hand_on()
    stage.tally()


def leaves_them_out_before_others(rank: RankContext) -> None:
    """It goes on to messages of another kind: these are not what the others wait for."""
    stage = Stage(rank)
    if rank.index != 2:
        stage.hand_on()
    stage.tally()
    stage.gossip()


def leaves_them_out_between_two_counts(rank: RankContext) -> None:
    stage = Stage(rank)
    for turn in range(2):
        stage.tally()
        if (rank.index, turn) != (2, 0):
            stage.hand_on()


@pytest.mark.parametrize(
    "body", [leaves_its_messages_out, leaves_them_out_before_others, leaves_them_out_between_two_counts]
)
def test_who_left_its_messages_out_is_not_told_of_their_order(
    fresh: World, body: Callable[[RankContext], None]
) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (2,))
    assert {"message", "tally"} & marks(found)[0]


def counts_in_pairs(rank: RankContext) -> None:
    """Rank 1 receives before it counts with rank 0; how the other pair does it, in another group, says nothing."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = pairs[rank.index // 2]
    x = torch.ones(2)
    if rank.index == 0:
        dist.all_reduce(x, group=own)
        dist.send(x, dst=1)
    elif rank.index == 1:
        dist.recv(x, src=0)
        dist.all_reduce(x, group=own)
    elif rank.index == 2:
        dist.send(x, dst=3)
        dist.all_reduce(x, group=own)
    else:
        dist.recv(x, src=2)
        dist.all_reduce(x, group=own)


def sends_behind_the_barrier(rank: RankContext) -> None:
    """One against one: ranks that exchange nothing do not say what is to come first."""
    x = torch.ones(2)
    if rank.index == 0:
        dist.barrier()
        dist.send(x, dst=1)
    elif rank.index == 1:
        dist.recv(x, src=0)
        dist.barrier()
    else:
        dist.barrier()


@pytest.mark.parametrize("body", [counts_in_pairs, sends_behind_the_barrier])
def test_whom_it_does_not_concern_has_no_say(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, ())


def names_an_idle_rank(rank: RankContext) -> None:
    x = torch.ones(2)
    work = dist.isend(x, dst=1) if rank.index == 0 else None
    if rank.index == 1:
        dist.recv(x, src=2)
    dist.barrier()
    if work is not None:
        work.wait()


def test_who_is_idle_is_not_to_blame_for_being_named(fresh: World) -> None:
    (found,) = run(fresh, names_an_idle_rank, deadline=30).findings
    assert 2 not in found.culprits
    assert 3 not in found.culprits


def hands_its_shard_over_too_early(rank: RankContext) -> None:
    """The last one takes a header, and the shards behind the barrier: in a branch of its own, and rightly so."""
    x, last = torch.ones(2), rank.world_size - 1
    if rank.index == last:
        dist.recv(x, src=0, tag=1)
        dist.barrier()
        for source in range(last):
            dist.recv(x, src=source)
    else:
        if rank.index == 0:
            dist.send(x, dst=last, tag=1)
        if rank.index == 2:
            dist.send(x, dst=last)  # early
        dist.barrier()
        if rank.index != 2:
            dist.send(x, dst=last)


def test_who_is_to_take_it_behind_the_barrier_is_not_to_blame(fresh: World) -> None:
    (found,) = run(fresh, hands_its_shard_over_too_early, deadline=30).findings
    assert found.culprits != (3,)


def works_in_a_chain_and_saves(rank: RankContext) -> None:
    """All but the last exchange messages before the barrier; what they owe the last one comes behind it."""
    x, last = torch.ones(2), rank.world_size - 1
    if rank.index == last:
        dist.barrier()
        for source in range(last):
            dist.recv(x, src=source)
        return
    for _ in range(2):
        if rank.index:
            dist.recv(x, src=rank.index - 1)
        if rank.index < last - 1:
            dist.send(x, dst=rank.index + 1)
    if rank.index == 1:
        dist.send(x, dst=last)
        dist.barrier()
    else:
        dist.barrier()
        dist.send(x, dst=last)


def works_in_a_ring_and_saves(rank: RankContext) -> None:
    x, y, last = torch.ones(2), torch.zeros(2), rank.world_size - 1
    if rank.index == last:
        dist.barrier()
        for source in range(last):
            dist.recv(x, src=source)
        return
    for _ in range(2):
        work = dist.isend(x, dst=(rank.index + 1) % last)
        dist.recv(y, src=(rank.index - 1) % last)
        assert work is not None
        work.wait()
    if rank.index == 1:
        dist.send(x, dst=last)
    dist.barrier()
    if rank.index != 1:
        dist.send(x, dst=last)


@pytest.mark.parametrize("body", [works_in_a_chain_and_saves, works_in_a_ring_and_saves])
def test_messages_of_another_line_say_nothing_of_it(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, (1,))


def collects(x: torch.Tensor) -> None:
    for source in (1, 2, 3):
        dist.recv(x, src=source)


def collects_before_the_sum_once(rank: RankContext) -> None:
    x, loss = torch.ones(2), torch.ones(1)
    for step in range(3):
        if rank.index == 0 and step == 1:
            for source in (1, 2, 3):
                dist.recv(x, src=source)
            dist.all_reduce(loss)
            continue
        dist.all_reduce(loss)
        if rank.index == 0:
            collects(x)
        else:
            dist.send(x, dst=0)


def test_who_begins_the_next_round_before_its_sum_is_early(fresh: World) -> None:
    (found,) = run(fresh, collects_before_the_sum_once, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, (0,))


def collects_once_more(rank: RankContext) -> None:
    """A sum comes behind the loop as well: that is no sum of this round."""
    x, loss = torch.ones(2), torch.ones(1)
    for step in range(3):
        dist.all_reduce(loss)
        if rank.index:
            dist.send(x, dst=0)
            continue
        collects(x)
        if step == 1:
            dist.recv(x, src=2)  # once more
    dist.all_reduce(loss)


def test_who_has_one_more_than_all_have_sent_is_not_early(fresh: World) -> None:
    (found,) = run(fresh, collects_once_more, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (0,))
    assert marks(found)[0] == {"once more"}
