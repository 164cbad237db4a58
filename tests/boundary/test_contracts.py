"""What the contract of a collective says, from its arguments: what must be equal, and what only by twos."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.boundary.contracts import terms_of
from rankdrill.step import Contract


def contract(op: str, tensors: Any = None, outputs: Any = None, rank: int = 0, size: int = 2, **more: Any) -> Contract:
    return terms_of(op, {"tensors": tensors, "outputs": outputs, **more}, rank, size).contract


def reducing(op: Any) -> dist.AllreduceOptions:
    opts = dist.AllreduceOptions()
    opts.reduceOp = op
    return opts


def rooted(rank: int) -> dist.BroadcastOptions:
    opts = dist.BroadcastOptions()
    opts.rootRank = rank
    return opts


ONES = [torch.ones(4)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (contract("all_reduce", ONES), contract("broadcast", ONES, opts=rooted(0))),
        (
            contract("all_reduce", ONES, opts=reducing(dist.ReduceOp.SUM)),
            contract("all_reduce", ONES, opts=reducing(dist.ReduceOp.MAX)),
        ),
        (contract("broadcast", ONES, opts=rooted(0)), contract("broadcast", ONES, opts=rooted(1))),
        (contract("all_reduce", ONES), contract("all_reduce", [torch.ones(4, dtype=torch.int32)])),
        (contract("all_reduce", ONES), contract("all_reduce", [torch.ones(5)])),
        (contract("all_reduce_coalesced", [*ONES] * 40), contract("all_reduce_coalesced", [*ONES] * 39)),
        (
            contract("all_reduce_coalesced", [*ONES] * 40 + [torch.ones(1)]),
            contract("all_reduce_coalesced", [*ONES] * 40 + [torch.ones(2)]),
        ),
        (
            contract("all_reduce_coalesced", [*ONES] * 40, opts=reducing(dist.ReduceOp.SUM)),
            contract("all_reduce_coalesced", [*ONES] * 40, opts=reducing(dist.ReduceOp.MAX)),
        ),
    ],
)
def test_what_must_be_equal_is_in_the_digest(one: Contract, other: Contract) -> None:
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (contract("all_reduce", [torch.ones(2, 3)]), contract("all_reduce", [torch.ones(6)])),
        (contract("all_gather", ONES, [ONES * 2]), contract("all_gather", [torch.ones(9)], [ONES * 2])),
        (
            contract("gather", ONES, [ONES * 2], opts=rooted(0)),
            contract("gather", ONES, [], rank=1, opts=rooted(0)),
        ),
        (
            contract("scatter", [ONES * 2], ONES, opts=rooted(0)),
            contract("scatter", [], ONES, rank=1, opts=rooted(0)),
        ),
        (contract("barrier"), contract("barrier")),
    ],
)
def test_what_need_not_be_equal_is_not(one: Contract, other: Contract) -> None:
    assert one.digest == other.digest


def split(sent: list[int], received: list[int], rows: int = 8) -> Contract:
    tensor = torch.ones(rows, 3)
    return contract("all_to_all_single", tensor, tensor, input_splits=sent, output_splits=received)


def test_splits_are_counted_in_elements() -> None:
    assert split([1, 7], [4, 4]).sends == (3, 21)
    assert split([1, 7], [4, 4]).receives == (12, 12)
    assert split([], []).each == split([4, 4], [4, 4]).each == 12
    assert "sent as 1,7 received as 4,4" in split([1, 7], [4, 4]).shown


def test_what_is_moved_by_twos() -> None:
    even = contract("all_gather", ONES, [ONES * 2])
    assert (even.each, even.sends) == (4, ())
    uneven = contract("all_gather", ONES, [[torch.ones(4), torch.ones(6)]])
    assert (uneven.each, uneven.sends, uneven.receives) == (None, (4, 4), (4, 6))
    sender = contract("gather", ONES, [], rank=1, opts=rooted(0))
    assert (sender.sends, sender.receives) == ((4, 0), (0, 0))
    receiver = contract("scatter", [], ONES, rank=1, opts=rooted(0))
    assert (receiver.sends, receiver.receives) == ((0, 0), (4, 0))


def test_a_call_that_torch_will_refuse_says_nothing_of_what_it_moves() -> None:
    wrong = contract("all_gather", ONES, [ONES * 3])
    assert (wrong.each, wrong.sends, wrong.receives) == (None, (), ())


def test_the_same_call_has_the_same_contract() -> None:
    assert contract("all_reduce", ONES) is contract("all_reduce", [torch.zeros(4)])
