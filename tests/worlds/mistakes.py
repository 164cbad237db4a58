"""Programs with one mistake each, made by one rank, and the correct programs that resemble them.

The line of the mistake ends in ``# odd``, that of what the others do in ``# most``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["MISTAKES", "TWINS", "Body"]

Body = Callable[[int], Any]


def another_op(odd: int) -> None:
    buffer = torch.ones(4)
    dist.barrier()
    if dist.get_rank() == odd:
        dist.all_reduce(buffer)  # odd
    else:
        dist.broadcast(buffer, 0)  # most


def another_reduce_op(odd: int) -> None:
    if dist.get_rank() == odd:
        dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX)  # odd
    else:
        dist.all_reduce(torch.ones(4))  # most


def another_root(odd: int) -> None:
    if dist.get_rank() == odd:
        dist.broadcast(torch.ones(4), 1)  # odd
    else:
        dist.broadcast(torch.ones(4), 0)  # most


def another_dtype(odd: int) -> None:
    if dist.get_rank() == odd:
        dist.all_reduce(torch.ones(4, dtype=torch.int32))  # odd
    else:
        dist.all_reduce(torch.ones(4))  # most


def another_shape(odd: int) -> None:
    for step in range(3):
        if dist.get_rank() == odd and step == 2:
            dist.all_reduce(torch.ones(7))  # odd
        else:
            dist.all_reduce(torch.ones(8))  # most


def other_splits(odd: int) -> None:
    size = dist.get_world_size()
    inputs, outputs, even = torch.ones(size), torch.zeros(size), [1] * size
    if dist.get_rank() == odd:
        dist.all_to_all_single(outputs, inputs, even, [2, 0, *even[2:]])  # odd
    else:
        dist.all_to_all_single(outputs, inputs, even, even)  # most


def another_order(odd: int) -> None:
    if dist.get_rank() == odd:
        dist.all_reduce(torch.ones(1))  # odd
        dist.barrier()
    else:
        dist.barrier()  # most
        dist.all_reduce(torch.ones(1))


def another_group(odd: int) -> None:
    other = dist.new_group(list(range(dist.get_world_size())))
    if dist.get_rank() == odd:
        dist.all_reduce(torch.ones(4), group=other)  # odd
    else:
        dist.all_reduce(torch.ones(4))  # most


# kind of finding, argument
MISTAKES: dict[Body, tuple[str, str]] = {
    another_op: ("call ordering", "op"),
    another_reduce_op: ("operator mismatch", "reduce op"),
    another_root: ("root mismatch", "root"),
    another_dtype: ("datatype mismatch", "dtype"),
    another_shape: ("size mismatch", "size"),
    other_splits: ("size mismatch", "split"),
    another_order: ("call ordering", "op"),
    another_group: ("group mismatch", "group"),
}


# ---------------------------------------------------------------------------------------------------- correct


def from_different_lines(odd: int) -> Any:
    if dist.get_rank() == 0:
        sent = torch.full((3,), 7.0)
        dist.broadcast(sent, 0)
        return sent.tolist()
    received = torch.zeros(3)
    dist.broadcast(received, 0)
    return received.tolist()


def same_reduce_op(odd: int) -> Any:
    tensor = torch.full((2,), float(dist.get_rank()))
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def each_its_turn_as_root(odd: int) -> Any:
    got = []
    for root in range(dist.get_world_size()):
        tensor = torch.full((1,), float(dist.get_rank()))
        dist.broadcast(tensor, root)
        got.append(tensor.item())
    return got


def dtypes_in_turn(odd: int) -> Any:
    tensors = [torch.ones(2, dtype=dtype) for dtype in (torch.float32, torch.int64, torch.float64)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    return [tensor.tolist() for tensor in tensors]


def another_shape_of_as_many(odd: int) -> Any:
    tensor = torch.ones(2, 3) if dist.get_rank() == odd else torch.ones(6)
    dist.all_reduce(tensor)
    return tensor.flatten().tolist()


def uneven_chunks_reduced(odd: int) -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.zeros(rank + 1)
    dist.reduce_scatter(mine, [torch.ones(member + 1) for member in range(size)])
    return mine.sum().item() == size * (rank + 1)


def splits_that_fit(odd: int) -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    # What rank i sends to j is (i + j) % 3 rows of two.
    sends = [(rank + member) % 3 for member in range(size)]
    received = torch.zeros(sum(sends), 2)
    dist.all_to_all_single(received, torch.full((sum(sends), 2), float(rank)), sends, list(sends))
    return received[:, 0].tolist() == [float(member) for member in range(size) for _ in range(sends[member])]


def splits_given_by_one(odd: int) -> Any:
    size = dist.get_world_size()
    given = [1] * size if dist.get_rank() == odd else None
    received = torch.zeros(size)
    dist.all_to_all_single(received, torch.ones(size), given, given)
    return received.tolist()


def objects_of_all_sizes(odd: int) -> Any:
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, "x" * (100 * dist.get_rank()))
    at_one: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == odd else None
    dist.gather_object(dist.get_rank(), at_one, odd)
    sent = [dist.get_rank()]
    dist.broadcast_object_list(sent, 0)
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, list(range(dist.get_world_size())) if dist.get_rank() == 0 else None, 0)
    return [len(each) for each in gathered], sent, scattered[0] == dist.get_rank()


def gathered_and_scattered(odd: int) -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((2,), float(rank))
    many = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(many, mine)
    dist.gather(mine, many if rank == odd else None, odd)
    dist.scatter(mine, many if rank == odd else None, odd)
    return [each.tolist() for each in many], mine.tolist() == [rank, rank]


def a_group_that_some_never_use(odd: int) -> Any:
    size = dist.get_world_size()
    halves = [dist.new_group(list(range(start, size, 2))) for start in range(2)]
    tensor = torch.ones(1 + dist.get_rank() % 2)  # each half has sizes and ops of its own
    if dist.get_rank() % 2:
        dist.all_reduce(tensor, group=halves[1])
    else:
        dist.broadcast(tensor, 0, group=halves[0])
        dist.barrier(group=halves[0])
    dist.barrier()
    return "done"


def a_group_made_again(odd: int) -> Any:
    sums = []
    for size in (1, 2, 3):
        group = dist.new_group(list(range(dist.get_world_size())))
        tensor = torch.ones(size)
        dist.all_reduce(tensor, group=group)
        dist.destroy_process_group(group)
        sums.append(tensor.tolist())
    return sums


def under_way_together(odd: int) -> Any:
    tensors = [torch.ones(size) for size in (1, 5, 3, 2)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works) if dist.get_rank() == odd else works:
        work.wait()
    return [tensor.tolist() for tensor in tensors]


def a_straggler(odd: int) -> Any:
    if dist.get_rank() == odd:
        time.sleep(0.3)
    dist.barrier()
    return "done"


def one_far_ahead(odd: int) -> Any:
    """The root of a broadcast waits for nobody: it may be further ahead than the board has room for."""
    for number in range(200):
        dist.broadcast(torch.full((1 + number % 7,), 1.0), 0)
    return "done"


def refused_and_called_again(odd: int) -> Any:
    tensor, outputs = torch.ones(2), [torch.zeros(2) for _ in range(dist.get_world_size())]
    if dist.get_rank() == odd:
        try:
            dist.all_gather([*outputs, torch.zeros(2)], tensor)
        except (RuntimeError, ValueError):
            pass
        else:
            raise AssertionError("torch takes a list that is too long")
    dist.all_gather(outputs, tensor)
    dist.all_reduce(tensor)
    return tensor.tolist()


TWINS: tuple[Body, ...] = (
    from_different_lines,
    same_reduce_op,
    each_its_turn_as_root,
    dtypes_in_turn,
    another_shape_of_as_many,
    uneven_chunks_reduced,
    splits_that_fit,
    splits_given_by_one,
    objects_of_all_sizes,
    gathered_and_scattered,
    a_group_that_some_never_use,
    a_group_made_again,
    under_way_together,
    a_straggler,
    one_far_ahead,
    refused_and_called_again,
)
