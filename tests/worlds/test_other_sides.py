"""Where the source shows two sides that are each right by themselves: neither is blamed for what the other did."""

from __future__ import annotations

import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.torch_can import Can, needs

DEADLINE_S = 60.0


def of_one_of_two_groups() -> None:
    both = dist.new_group([0, 1])
    tensor = torch.ones(4)
    if dist.get_rank() == 0:
        work = dist.reduce(tensor, dst=1, group=both, async_op=True)
    else:
        work = dist.reduce(tensor, dst=1, async_op=True)
    dist.barrier()
    work.wait()


def test_of_two_ranks_on_two_groups_neither_is_the_odd_one() -> None:
    with World(2) as world:
        outcome = world.run(of_one_of_two_groups, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.culprits == (), outcome.summary()
    assert finding.ranks == (0, 1)


def beside_two_that_show_which() -> None:
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank // 2] if rank != 3 else dist.group.WORLD
    dist.all_reduce(torch.ones(4), group=mine)  # theirs
    dist.barrier()


def test_others_at_the_same_line_tell_who_is() -> None:
    with World(4) as world:
        outcome = world.run(beside_two_that_show_which, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.GROUP, (3,)), outcome.summary()


def in_another_order() -> None:
    rank = dist.get_rank()
    pairs = [dist.new_group([1, 2]), dist.new_group([0, 3])]
    pair = pairs[rank in (0, 3)]
    ones = [torch.ones(1) for _ in range(4)]
    if rank == 3:
        dist.reduce_scatter(torch.ones(1), ones)
        dist.barrier(group=pair)
    else:
        dist.barrier(group=pair)
        dist.reduce_scatter(torch.ones(1), ones)
    dist.barrier(group=pair)


def test_who_comes_to_the_others_call_later_left_nothing_out() -> None:
    needs(Can.REDUCE_SCATTER)
    with World(4) as world:
        outcome = world.run(in_another_order, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind == FindingKind.CALL_ORDERING, outcome.summary()
    assert {3} <= set(finding.ranks) <= {0, 3}
