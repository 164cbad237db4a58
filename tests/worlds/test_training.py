"""What is said of training speaks of DistributedDataParallel, FSDP and the like, as soon as it is certain."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.torch_can import Can, needs
from tests.worlds.parting import guilty_line
from tests.worlds.training import (
    ODD,
    RIGHT,
    UNEVEN,
    a_kernel_in_another_order,
    a_wider_layer,
    a_wider_layer_on_the_first,
    one_head_less,
)

Body = Callable[[], None]
LONG = 120.0  # a deadline that a test which waits for it would not be forgiven
EARLY = 60.0  # well before it, on the busiest machine


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    # DistributedDataParallel imports it when it is first used, which takes seconds.
    with World(3, preload=["torch._dynamo", "tests.worlds.training"]) as world:
        yield world


@pytest.mark.parametrize("body", UNEVEN, ids=lambda body: body.__name__)
def test_a_rank_with_a_batch_less_is_told_early(three: World, body: Body) -> None:
    outcome = three.run(body, deadline=LONG)
    assert outcome.elapsed < EARLY
    assert outcome.culprits == (ODD,)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.MISSING
    assert {site.line for site in finding.sides[0].sites if site} == {guilty_line(body)}


def test_a_backward_pass_left_out_is_no_forward_pass_too_many(three: World) -> None:
    """The gathering of weights is the same in both: it only shows at the next call."""
    needs(Can.SHARD)

    def body() -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
        fully_shard(model, reshard_after_forward=True)
        for step in range(4):
            loss = model(torch.ones(2, 8)).sum()
            if step == 2 and dist.get_rank() == ODD:
                continue
            loss.backward()  # here

    (finding,) = three.run(body, deadline=LONG).findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (ODD,))
    assert f"rank {ODD} leaves out FSDP backward's all_gather_into_tensor #" in finding.lines[0]
    assert {site.line for site in finding.sides[0].sites if site} == {guilty_line(body)}


def test_buckets_and_passes_are_counted(three: World) -> None:
    (finding,) = three.run(UNEVEN[1], deadline=LONG).findings
    left_out, waiting, returned = finding.lines
    assert f"rank {ODD} leaves out DDP bucket 0's all_reduce #" in left_out
    assert ", in backward pass 4, at " in left_out
    assert "ranks 0, 2 wait in DDP bucket " in waiting
    assert ", in backward pass 4, at " in waiting
    assert f"rank {ODD} returned after DDP bucket " in returned
    assert ", in backward pass 3, at " in returned


@pytest.mark.parametrize("body", RIGHT, ids=lambda body: body.__name__)
def test_right_training_passes(three: World, body: Body) -> None:
    outcome = three.run(body, deadline=LONG)
    assert outcome.ok, outcome.summary()


def sharded() -> None:
    model = nn.Linear(4, 4)
    fully_shard(model)
    for _ in range(2 if dist.get_rank() == ODD else 3):
        model(torch.ones(2, 4)).sum().backward()


def distributed_tensor() -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensor = distribute_tensor(torch.ones(9, 2), mesh, [Shard(0)])
    for _ in range(2 if dist.get_rank() == ODD else 3):
        total = tensor.sum() + 1
        assert isinstance(total, DTensor)
        total.full_tensor()


def saved() -> None:
    with tempfile.TemporaryDirectory() as directory:
        if dist.get_rank() != ODD:
            state_dict_saver.save({"weight": torch.ones(3)}, checkpoint_id=directory)


@pytest.mark.parametrize(
    ("body", "name"), [(sharded, "FSDP forward"), (distributed_tensor, "DTensor"), (saved, "checkpoint.save")]
)
def test_a_call_is_told_by_what_made_it(three: World, body: Body, name: str) -> None:
    if body is sharded:
        needs(Can.SHARD)
    outcome = three.run(body, deadline=LONG)
    assert outcome.elapsed < EARLY
    assert outcome.culprits == (ODD,)
    assert f"rank {ODD} leaves out {name}" in str(outcome.findings[0])


def test_a_group_is_told_by_its_members(three: World) -> None:
    def body() -> None:
        pair, other = dist.new_group([0, 1]), dist.new_group([1, 2])
        assert other is not None
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1), group=pair)

    outcome = three.run(body, deadline=LONG)
    told = str(outcome.findings[0])
    assert told.count("(ranks 0, 1)") == 1, "where it is first spoken of"
    assert "(ranks 0, 1)" in str(outcome.ranks[0]), "and in what is said of a rank"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (a_wider_layer, FindingKind.SIZE, "makes DistributedDataParallel with sizes [8, 4] of parameter 0, at "),
        (
            a_kernel_in_another_order,
            FindingKind.LAYOUT,
            "makes DistributedDataParallel with parameter 0 in another order in memory than the first rank's, at ",
        ),
        (one_head_less, FindingKind.MISSING, "leaves out DistributedDataParallel's all_reduce of parameters 2, 3, "),
    ],
)
def test_what_ddp_says_itself_is_the_finding(three: World, body: Body, kind: FindingKind, words: str) -> None:
    outcome = three.run(body, deadline=LONG)
    assert outcome.elapsed < EARLY
    assert outcome.culprits == (ODD,)
    (finding,) = outcome.findings
    assert finding.kind is kind
    assert f"rank {ODD} {words}" in finding.lines[0]
    assert {site.line for site in finding.sides[0].sites if site} == {guilty_line(body)}
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    assert "RuntimeError" in str(caught.value.exceptions[0].__cause__), "what DistributedDataParallel raised"


def test_where_all_but_the_first_say_so_the_first_differs(three: World) -> None:
    outcome = three.run(a_wider_layer_on_the_first, deadline=LONG)
    assert outcome.culprits == (0,)
    assert outcome.findings[0].sides[1].ranks == (1, 2)


def test_where_all_count_other_parameters_than_one_that_one_differs(three: World) -> None:
    def body(odd: int) -> None:
        nn.parallel.DistributedDataParallel(nn.Linear(2, 2, bias=dist.get_rank() != odd))

    for odd in (0, ODD):
        outcome = three.run(body, odd, deadline=LONG)
        (finding,) = outcome.findings
        assert (finding.kind, outcome.culprits) == (FindingKind.SIZE, (odd,))
        assert finding.lines[0].startswith(
            f"size mismatch: rank {odd} makes DistributedDataParallel of 1 parameters, at "
        )


def test_where_all_say_so_their_own_error_is_all_there_is(three: World) -> None:
    def body() -> None:
        model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        model.forward = lambda batch: model[0](batch)
        wrapped = nn.parallel.DistributedDataParallel(model)
        for _ in range(2):
            wrapped(torch.ones(1, 2)).sum().backward()

    outcome = three.run(body, deadline=LONG)
    assert outcome.findings == ()
    assert all(isinstance(rank.error, RuntimeError) for rank in outcome.ranks)
