"""How a rank went past a call that it left out: by the one or two ways that its source leaves, told of no more."""

import functools
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn

from rankdrill import World

ODD = 3
DEADLINE_S = 20.0


def by_an_if_around_it() -> None:
    dist.barrier()
    if dist.get_rank() != ODD:
        dist.all_reduce(torch.ones(2))
    dist.barrier()


def by_a_return() -> None:
    has_work = dist.get_rank() != ODD
    if not has_work:
        return
    dist.all_reduce(torch.ones(2))


def by_a_continue_in_one_round() -> None:
    for step in range(4):
        if dist.get_rank() == 0:  # as in all rounds
            dist.all_reduce(torch.ones(2))
            continue
        batch = torch.ones(0 if (dist.get_rank(), step) == (ODD, 2) else 4)
        if not len(batch):
            continue
        dist.all_reduce(batch[:2])
    dist.broadcast(torch.ones(1), 0)


def by_a_break() -> None:
    loss = 1.0
    for step in range(5):
        dist.all_reduce(torch.tensor(loss))
        loss /= 4.0 if dist.get_rank() == ODD else 2.0
        if loss < 0.1 and step < 3:
            break
    dist.broadcast(torch.ones(1), 0)


def by_a_shorter_loop() -> None:
    shards = [torch.ones(2)] * (2 if dist.get_rank() == ODD else 3)
    for shard in shards:
        dist.all_reduce(shard)
    dist.barrier()


def in_a_caller_of_its_helper() -> None:
    def average(value: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(value)
        return value / dist.get_world_size()

    for step in range(3):
        if step != 1 or dist.get_rank() != ODD:
            average(torch.ones(2))
    dist.broadcast(torch.ones(1), 0)


def in_the_branch_where_it_is() -> None:
    ready = dist.get_rank() != ODD
    if dist.get_world_size() > 1 and ready:
        dist.all_reduce(torch.ones(2))
        dist.barrier()
    else:
        dist.barrier()


def average(value: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(value)
    return value / dist.get_world_size()


def in_a_helper_that_is_called_again() -> None:
    best = 0.0
    for step in range(4):
        score = float(step == 2 and dist.get_rank() == ODD)
        if score > best:
            best = score
            continue
        average(torch.ones(2))
    average(torch.ones(1))


def batches_of(rank: int) -> list[torch.Tensor]:
    return [torch.ones(4), torch.ones(4), torch.ones(0 if rank == ODD else 4)]


def by_one_of_two() -> None:
    for batch in batches_of(dist.get_rank()):
        if not batch.numel():
            continue
        dist.all_reduce(batch)
    dist.barrier()


def by_one_of_three() -> None:
    empty, broken, late = dist.get_rank() == ODD, dist.get_rank() == -1, dist.get_rank() == -2
    if empty:
        return
    if broken:
        return
    if late:
        return
    dist.all_reduce(torch.ones(2))


def by_an_error_that_was_caught() -> None:
    ready = dist.get_rank() < 4
    try:
        if ready:
            torch.ones(2 if dist.get_rank() != ODD else 0)[1] += 1
            dist.all_reduce(torch.ones(2))
    except IndexError:
        pass
    dist.barrier()


def where_an_error_is_handled() -> None:
    try:
        torch.ones(2)[3 if dist.get_rank() != ODD else 1] += 1
    except IndexError:
        dist.all_reduce(torch.ones(2))
    dist.barrier()


def in_a_case_of_its_own() -> None:
    match dist.get_rank():
        case 3:
            pass
        case _:
            dist.all_reduce(torch.ones(2))
    dist.barrier()


def by_what_the_library_does_with_it() -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    for step in range(int(torch.tensor(3))):
        with model.no_sync() if dist.get_rank() == ODD and step == 2 else nullcontext():
            model(torch.ones(4, 2)).sum().backward()
    dist.barrier()


def by_another_branch_that_does_not_sync() -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    for step in range(int(torch.tensor(3))):
        if dist.get_rank() == ODD and step == 2:
            with model.no_sync():
                model(torch.ones(4, 2)).sum().backward()
        else:
            model(torch.ones(4, 2)).sum().backward()
    dist.barrier()


def by_a_backward_pass_less() -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    for step in range(4):
        loss = model(torch.ones(4, 2)).sum()
        if loss.isnan():
            continue
        if dist.get_rank() == ODD and step == 2:
            continue
        loss.backward()
    dist.barrier()


def by_an_error_in_one_round() -> None:
    for step in range(4):
        try:
            int("?" if (dist.get_rank(), step) == (ODD, 2) else "1")
            dist.all_reduce(torch.ones(2))
        except ValueError:
            continue
    dist.barrier()


def by_an_error_that_one_of_two_handlers_caught() -> None:
    for step in range(4):
        try:
            int("?" if (dist.get_rank(), step) == (ODD, 2) else "1")
            dist.all_reduce(torch.ones(2))
        except ValueError:
            continue
        except IndexError:
            break
    dist.barrier()


@functools.cache
def norm_of(table: str) -> float:
    row = torch.ones(len(table))
    dist.all_reduce(row)
    return float(row.sum())


def by_what_was_kept_of_a_call_before() -> None:
    norm_of.cache_clear()
    for table in ("item", "user", "item" if dist.get_rank() == ODD else "time"):
        norm_of(table)
    dist.barrier()


def by_an_error_past_a_loop_over_a_model() -> None:
    model = nn.Linear(2, 1)
    for step in range(3 + dist.get_world_size() * 0):
        try:
            model(torch.ones(4, 3 if (dist.get_rank(), step) == (ODD, 1) else 2)).sum().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        except RuntimeError:
            continue
    dist.barrier()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (by_what_was_kept_of_a_call_before, "goes past it by what `functools.cache` has kept, at"),
        (by_an_error_past_a_loop_over_a_model, "goes past it by an error that `except RuntimeError` caught, at"),
        (by_an_if_around_it, "goes past it by `if dist.get_rank() != ODD`, at"),
        (by_a_return, "goes past it by `if not has_work`, at"),
        (by_a_continue_in_one_round, "goes past it by `if not len(batch)`, at"),
        (by_a_break, "goes past it by `if loss < 0.1 and step < 3`, at"),
        (by_a_shorter_loop, "goes past it by the end of `for shard in shards`, at"),
        (in_a_caller_of_its_helper, "goes past it by `if step != 1 or dist.get_rank() != ODD`, at"),
        (in_a_helper_that_is_called_again, "goes past it by `if score > best`, at"),
        (by_one_of_two, "goes past it by `if not batch.numel()`, at"),
        (by_another_branch_that_does_not_sync, "goes past it by `if dist.get_rank() == ODD and step == 2`, at"),
        (by_a_backward_pass_less, "goes past it by `if dist.get_rank() == ODD and step == 2`, at"),
        (by_an_error_in_one_round, "goes past it by an error that `except ValueError` caught, at"),
        (in_the_branch_where_it_is, "goes past it by `if dist.get_world_size() > 1 and ready`, at"),
    ],
)
def test_the_one_way_past_is_told(four: World, body: Callable[[], None], told: str) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == ("missing call", (ODD,)), finding
    assert told in finding.lines[0]


@pytest.mark.parametrize(
    "body",
    [
        by_one_of_three,
        by_an_error_that_one_of_two_handlers_caught,
        where_an_error_is_handled,
        in_a_case_of_its_own,
        by_what_the_library_does_with_it,
    ],
    ids=lambda body: body.__name__,
)
def test_of_more_ways_none_is_told(four: World, body: Callable[[], None]) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == ("missing call", (ODD,)), finding
    assert "goes past it" not in str(finding)


def test_an_error_is_one_of_two_ways(four: World) -> None:
    (finding,) = four.run(by_an_error_that_was_caught, deadline=DEADLINE_S).findings
    assert finding.culprits == (ODD,)
    assert "goes past it by `if ready`, at" in finding.lines[0]
    assert ", or by an error that `except IndexError` caught, at" in finding.lines[0]


def test_of_two_ways_both_are_told(four: World) -> None:
    (finding,) = four.run(by_one_of_two, deadline=DEADLINE_S).findings
    assert ", or by the end of `for batch in batches_of(dist.get_rank())`, at" in finding.lines[0]


def in_a_loop_over_all_ranks() -> None:
    size = dist.get_world_size()
    for turn in range(1, size):
        peer = dist.get_rank() + turn
        if dist.get_rank() == ODD and peer > size + 1:
            break
        if peer == 0:
            continue
        dist.all_reduce(torch.ones(2))
    dist.barrier()


def in_a_loop_of_its_own_length() -> None:
    size = dist.get_world_size() - (dist.get_rank() == ODD)
    for turn in range(1, size):
        if turn > 9:
            break
        dist.all_reduce(torch.ones(2))
    dist.barrier()


def test_a_loop_over_all_ranks_ends_alike_on_all(four: World) -> None:
    (finding,) = four.run(in_a_loop_over_all_ranks, deadline=DEADLINE_S).findings
    assert finding.culprits == (ODD,)
    assert "by `if dist.get_rank() == ODD and peer > size + 1`, at" in finding.lines[0]
    assert "the end of" not in finding.lines[0]


def test_a_loop_that_the_rank_is_asked_for_does_not(four: World) -> None:
    (finding,) = four.run(in_a_loop_of_its_own_length, deadline=DEADLINE_S).findings
    assert finding.culprits == (ODD,)
    assert "by the end of `for turn in range(1, size)`, at" in finding.lines[0]
