"""Collectives that look as if ranks disagreed: other lines, other shapes, uneven sizes where they are allowed."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, correct


@correct(ranks=4)
def broadcast_from_two_lines(rank: Rank) -> None:
    if rank.index == 0:
        weights = torch.full((3,), 7.0)
        dist.broadcast(weights, src=0)
    else:
        weights = torch.empty(3)
        dist.broadcast(weights, src=0)
    assert weights.tolist() == [7.0] * 3


@correct(ranks=3)
def a_line_of_its_own_for_each_rank(rank: Rank) -> None:
    value = torch.ones(1)
    match rank.index:
        case 0:
            dist.all_reduce(value)
        case 1:
            dist.all_reduce(value, dist.ReduceOp.SUM)
        case _:
            dist.all_reduce(tensor=value, group=rank.group)
    assert value.item() == 3


@correct(ranks=2)
def another_shape_of_as_many_elements(rank: Rank) -> None:
    image = torch.ones(2, 3) if rank.index else torch.ones(6)
    dist.all_reduce(image)
    assert image.sum().item() == 12


@correct(ranks=3)
def reversed_and_strided(rank: Rank) -> None:
    """One rank sends a copy of every second element, the others what is contiguous anyhow."""
    table = torch.arange(8.0)
    mine = table[::2].contiguous() if rank.index == 1 else torch.arange(0.0, 8.0, 2.0)
    parts = [torch.zeros(4) for _ in range(3)]
    dist.all_gather(parts, mine)
    assert all(part.tolist() == [0.0, 2.0, 4.0, 6.0] for part in parts)


@correct(ranks=4)
def splits_that_fit(rank: Rank) -> None:
    sends = [(rank.index + other) % 3 for other in range(4)]
    received = torch.zeros(sum(sends), 2)
    dist.all_to_all_single(received, torch.ones(sum(sends), 2), sends, list(sends))
    assert received.sum().item() == 2 * sum(sends)


@correct(ranks=3)
def nothing_for_some(rank: Rank) -> None:
    """All rows go to rank 0, which sends nothing."""
    sends = [0 if rank.index == 0 else 2, 0, 0]
    takes = [0, 2, 2] if rank.index == 0 else [0, 0, 0]
    received = torch.zeros(sum(takes))
    dist.all_to_all_single(received, torch.ones(sum(sends)), takes, sends)
    assert received.sum().item() == (4 if rank.index == 0 else 0)


@correct(ranks=2)
def splits_given_by_one_only(rank: Rank) -> None:
    even = [2, 2] if rank.index else None
    received = torch.zeros(4)
    dist.all_to_all_single(received, torch.ones(4), even, even)
    assert received.sum().item() == 4


@correct(ranks=3)
def padded_to_the_longest(rank: Rank) -> None:
    mine = torch.ones(rank.index + 1)
    longest = torch.tensor([mine.numel()])
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    padded = torch.nn.functional.pad(mine, (0, int(longest) - mine.numel()))
    rows = [torch.zeros(int(longest)) for _ in range(3)]
    dist.all_gather(rows, padded)
    assert torch.stack(rows).sum().item() == 6


@correct(ranks=4)
def objects_of_all_sizes(rank: Rank) -> None:
    everyones: list[Any] = [None] * 4
    dist.all_gather_object(everyones, "x" * 100 * rank.index)
    assert [len(each) for each in everyones] == [0, 100, 200, 300]


@correct(ranks=3)
def objects_of_other_types(rank: Rank) -> None:
    mine: Any = [None, {"score": 0.5}, torch.ones(3)][rank.index]
    everyones: list[Any] | None = [None] * 3 if rank.index == 1 else None
    dist.gather_object(mine, everyones, dst=1)
    box = [rank.index]
    dist.broadcast_object_list(box, src=2)
    assert box == [2]


@correct(ranks=4)
def each_its_turn_as_root(rank: Rank) -> None:
    for root in range(4):
        value = torch.tensor([rank.index])
        dist.broadcast(value, src=root)
        assert value.item() == root


@correct(ranks=3)
def outputs_only_where_they_are_wanted(rank: Rank) -> None:
    parts = [torch.zeros(2) for _ in range(3)] if rank.index == 2 else None
    dist.gather(torch.full((2,), float(rank.index)), parts, dst=2)
    share = torch.zeros(2)
    dist.scatter(share, parts, src=2)
    assert share.tolist() == [rank.index] * 2


@correct(ranks=2)
def dtypes_and_ops_in_turn(rank: Rank) -> None:
    ops = [dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT]
    dtypes = [torch.float32, torch.int64, torch.float64, torch.int32]
    for op, dtype in zip(ops, dtypes, strict=True):
        value = torch.full((3,), rank.index + 1, dtype=dtype)
        dist.all_reduce(value, op=op)
        assert value.unique().numel() == 1


@correct(ranks=6)
def sixty_steps_of_noise(rank: Rank) -> None:
    parts = [torch.zeros(1) for _ in range(6)]
    for step in range(60):
        dist.all_reduce(torch.ones(1 + step % 5))
        if step % 7 == 0:
            dist.all_gather(parts, torch.ones(1))
        if step % 11 == 10:
            dist.barrier()


@correct(ranks=3)
def functional_ones(rank: Rank) -> None:
    total = funcol.all_reduce(torch.ones(2), "sum", rank.group)
    rows = funcol.all_gather_tensor(total * rank.index, 0, rank.group)
    assert rows.sum().item() == 18


@correct(ranks=3)
def a_root_far_ahead(rank: Rank) -> None:
    """The root of a broadcast waits for nobody."""
    for number in range(150):
        dist.broadcast(torch.full((1 + number % 3,), 1.0), src=0)
    dist.barrier()


@correct(ranks=4)
def a_decision_that_all_take(rank: Rank) -> None:
    """One rank's NaN stops everybody, after everybody was asked."""
    for step in range(10):
        bad = torch.tensor([step == 6 and rank.index == 2], dtype=torch.int32)
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item():
            break
        dist.all_reduce(torch.ones(5))
    dist.barrier()


@correct(ranks=3, torch=(2, 8))
def uneven_chunks(rank: Rank) -> None:
    mine = torch.zeros(rank.index + 1)
    dist.reduce_scatter(mine, [torch.ones(other + 1) for other in range(3)])
    assert mine.tolist() == [3.0] * (rank.index + 1)


@correct(ranks=3)
def a_transposed_matrix_is_dense(rank: Rank) -> None:
    weights = torch.arange(12.0).reshape(3, 4).t()
    dist.all_reduce(weights)
    assert torch.equal(weights, torch.arange(12.0).reshape(3, 4).t() * 3)


@correct(ranks=4)
def a_column_is_a_row_to_others(rank: Rank) -> None:
    """However many dimensions of one element it has: there is but one order of the rest."""
    for _ in range(20):
        weights = torch.arange(4.0)
        given = weights.reshape(4, 1).t() if rank.index == 1 else weights.reshape(1, 4)
        dist.all_reduce(given)
        assert weights.tolist() == [0.0, 4.0, 8.0, 12.0]


@correct(ranks=2)
def gathered_from_a_transposed_matrix(rank: Rank) -> None:
    """Here torch puts in order what one rank has the other way round."""
    weights = torch.arange(6.0).reshape(2, 3) + 10 * rank.index
    mine = weights.t().contiguous().t() if rank.index == 1 else weights
    parts = [torch.zeros(2, 3) for _ in range(2)]
    dist.all_gather(parts, mine)
    assert torch.equal(torch.stack(parts), torch.arange(6.0).reshape(2, 3) + torch.tensor([0.0, 10.0])[:, None, None])


@correct(ranks=2)
def rows_of_a_table_are_contiguous(rank: Rank) -> None:
    table = torch.arange(60.0).reshape(6, 10)
    for first in range(0, 6, 2):
        dist.broadcast(table[first : first + 2], src=0)
    assert torch.equal(table, torch.arange(60.0).reshape(6, 10))


@correct(ranks=2)
def columns_are_gathered_as_they_are(rank: Rank) -> None:
    """Here torch copies what has gaps."""
    table = torch.arange(60.0).reshape(6, 10)
    parts = [torch.zeros(6, 4) for _ in range(2)]
    dist.all_gather(parts, table[:, ::3])
    assert all(torch.equal(part, table[:, ::3]) for part in parts)


@correct(ranks=3)
def a_column_reduced_by_way_of_a_copy(rank: Rank) -> None:
    table = torch.ones(6, 10)
    column = table[:, 2].contiguous()
    dist.all_reduce(column)
    table[:, 2] = column
    assert table.sum().item() == 60 + 6 * 2


@correct(ranks=3, torch=(2, 8))
def one_tensor_is_sent_to_all(rank: Rank) -> None:
    """What is sent may be the same for all; what is received lies side by side in one."""
    mine, same, whole = torch.zeros(2), torch.ones(2), torch.zeros(3, 2)
    for _ in range(3):
        dist.reduce_scatter(mine, [same] * 3)
        dist.all_gather(list(whole), mine)
    assert whole.tolist() == [[3, 3]] * 3


@correct(ranks=3)
def rows_as_they_were_announced(rank: Rank) -> None:
    """There and back, and once more in parts of another size, which nobody announces anew."""
    rows = [rank.index + 1, 2, 3 - rank.index]
    told, expected = torch.tensor(rows), torch.empty(3, dtype=torch.int64)
    dist.all_to_all_single(expected, told)
    takes = expected.tolist()
    mine, theirs = torch.ones(sum(rows), 2), torch.empty(sum(takes), 2)
    dist.all_to_all_single(theirs, mine, takes, rows)
    dist.all_to_all_single(mine, theirs.mul_(2), rows, takes)
    assert mine.sum() == 4.0 * sum(rows)
    dist.all_to_all_single(theirs.new_empty(3), theirs.new_ones(3), [1, 1, 1], [1, 1, 1])
