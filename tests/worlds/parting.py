"""Bodies of which one rank leaves a call out or makes one more; the guilty line ends in `# here`."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

__all__ = ["EXTRA", "MISSING", "RIGHT", "guilty_line"]

ODD = 2


def me() -> int:
    return dist.get_rank()


def guilty_line(body: Callable[[], None]) -> int:
    """The number of the line of `body` that ends in `# here`."""
    lines, first = inspect.getsourcelines(body)
    (found,) = (number for number, line in enumerate(lines, first) if line.rstrip().endswith("# here"))
    return found


# ------------------------------------------------------------------------------------------ a call is left out


def the_last_of_a_loop() -> None:
    tensor = torch.ones(2)
    for turn in range(5):
        if me() != ODD or turn < 4:
            dist.all_reduce(tensor)  # here


def one_of_two_in_a_loop() -> None:
    tensor = torch.ones(2)
    for turn in range(5):
        dist.all_reduce(tensor)
        if me() == ODD and turn == 2:
            continue
        dist.broadcast(tensor, 0)  # here


def one_of_two_in_the_first_round() -> None:
    tensor = torch.ones(2)
    for turn in range(5):
        dist.all_reduce(tensor)
        if me() != ODD or turn:
            dist.broadcast(tensor, 0)  # here


def one_that_looks_like_the_next() -> None:
    tensor = torch.ones(2)
    for turn in range(50):
        dist.all_reduce(tensor)
        if me() != ODD or turn != 25:
            dist.all_reduce(tensor)  # here
        dist.all_reduce(tensor)


def one_that_shows_by_a_size_much_later() -> None:
    for turn in range(10):
        if me() != ODD or turn != 1:
            dist.all_reduce(torch.ones(2))  # here
        dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(3))


def the_very_first() -> None:
    tensor = torch.ones(2)
    if me() != ODD:
        dist.all_reduce(tensor)  # here
    dist.broadcast(tensor, 0)


def one_before_an_inner_loop() -> None:
    tensor = torch.ones(2)
    for turn in range(4):
        if me() != ODD or turn != 2:
            dist.broadcast(tensor, 0)  # here
        for _ in range(2):
            dist.all_reduce(tensor)


def one_in_a_function_of_its_own() -> None:
    tensor = torch.ones(2)

    def add() -> None:
        dist.all_reduce(tensor)  # here

    def share() -> None:
        dist.broadcast(tensor, 0)

    for turn in range(3):
        if me() != ODD or turn != 1:
            add()
        share()


def the_rest_after_an_early_return() -> None:
    tensor = torch.ones(2)
    for turn in range(5):
        if me() == ODD and turn == 3:
            return
        dist.all_reduce(tensor)  # here
        dist.all_gather_object([None] * 4, turn)


def by_one_against_one() -> None:
    """Nobody is in the majority, but each round before has told what comes next."""
    tensor, pair = torch.ones(2), dist.new_group([1, ODD])
    if me() in (1, ODD):
        for turn in range(4):
            dist.all_reduce(tensor, group=pair)
            if me() != ODD or turn != 2:
                dist.broadcast(tensor, 1, group=pair)  # here


# ------------------------------------------------------------------------------------------ one call more


def the_first_of_all() -> None:
    tensor = torch.ones(2)
    if me() == ODD:
        dist.all_reduce(tensor)  # here
    dist.broadcast(tensor, 0)


def after_all_others_are_done() -> None:
    tensor = torch.ones(2)
    dist.broadcast(tensor, 0)
    if me() == ODD:
        dist.all_reduce(tensor)  # here


def by_a_loop_that_runs_once_more() -> None:
    tensor = torch.ones(2)
    for turn in range(4):
        dist.broadcast(tensor, 0)
        for _ in range(2 if me() == ODD and turn == 2 else 1):
            dist.all_reduce(tensor)  # here


def a_backward_more() -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    for _ in range(3 if me() == ODD else 2):
        model(torch.ones(1, 2)).sum().backward()  # here
    dist.barrier()


# ------------------------------------------------------------------------------------------ nobody does


def from_two_lines() -> None:
    tensor = torch.ones(2)
    for _ in range(3):
        if me() == ODD:
            dist.broadcast(tensor, ODD)
        else:
            dist.broadcast(tensor, ODD)
        dist.barrier()


def from_more_lines_on_one_rank() -> None:
    tensor = torch.ones(2)
    if me() == ODD:
        dist.all_reduce(tensor)
        dist.all_reduce(tensor)
    else:
        for _ in range(2):
            dist.all_reduce(tensor)


def one_whose_first_part_the_next_has_too() -> None:
    """Both gather sizes first: there they meet, and nothing differs yet."""
    if me() != ODD:
        dist.all_gather_object([None] * 4, me())  # here
    dist.gather_object(me(), [None] * 4 if me() == 1 else None, dst=1)


MISSING = (
    the_last_of_a_loop,
    one_of_two_in_a_loop,
    one_of_two_in_the_first_round,
    one_that_looks_like_the_next,
    one_that_shows_by_a_size_much_later,
    the_very_first,
    one_before_an_inner_loop,
    one_in_a_function_of_its_own,
    the_rest_after_an_early_return,
    by_one_against_one,
    one_whose_first_part_the_next_has_too,
)
EXTRA = (the_first_of_all, after_all_others_are_done, by_a_loop_that_runs_once_more, a_backward_more)
RIGHT = (from_two_lines, from_more_lines_on_one_rank)
