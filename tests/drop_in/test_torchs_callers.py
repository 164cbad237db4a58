"""More of what in torch calls object gathers, with rankdrill's in their place: it comes to the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import rankdrill
from tests.drop_in.test_torchs_own import in_torchs_place
from tests.gathers.attempts import all_alike

RANKS = 4
DEADLINE_S = 120


@pytest.fixture(scope="module")
def world() -> Iterator[rankdrill.World]:
    with rankdrill.World(RANKS) as world:
        yield world


def test_groups_that_only_their_members_make(world: rankdrill.World) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        ranks = [rank - rank % 2, rank - rank % 2 + 1]
        pair = dist.new_group(ranks, use_local_synchronization=True)
        everybody: list[Any] = [None] * 2
        on_first: list[Any] | None = [None] * 2 if rank == ranks[0] else None
        with in_torchs_place() as called:
            dist.all_gather_object(everybody, rank, group=pair)
            dist.gather_object(rank, on_first, dst=ranks[0], group=pair)
        return everybody == ranks, on_first in (None, ranks), called

    assert all_alike(world.run(body, deadline=DEADLINE_S).unwrap()) == (
        True,
        True,
        ["all_gather_object", "gather_object"],
    )


def tensor_in_shards() -> Any:
    """Made of what each rank has: they tell one another."""
    from torch.distributed._shard import sharded_tensor

    sharded: Any = sharded_tensor
    rank = dist.get_rank()
    shard = sharded.Shard.from_tensor_and_offsets(torch.full((2, 3), float(rank)), [2 * rank, 0], rank)
    made: Any = sharded.init_from_local_shards([shard], 2 * RANKS, 3)
    told = made.metadata()
    return (
        list(made.size()),
        [list(one.shard_offsets) for one in told.shards_metadata],
        str(told.tensor_properties.dtype),
    )


def state_of_an_optimizer() -> Any:
    """Of a model in shards, whole on each rank."""
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

    torch.manual_seed(1)
    cpu = torch.device("cpu")
    model: Any = FullyShardedDataParallel(nn.Linear(4, 4), device_id=cpu, use_orig_params=True)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        state: Any = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    return {name: {key: value.tolist() for key, value in held.items()} for name, held in state["state"].items()}


def values_of_one_type() -> Any:
    """Torch looks at what came before it gives it on."""
    from torch.distributed import collective_utils

    gather: Any = collective_utils.all_gather
    return gather(lambda: 10 * dist.get_rank(), pg=dist.group.WORLD)


@pytest.mark.parametrize("work", [tensor_in_shards, state_of_an_optimizer, values_of_one_type])
@pytest.mark.filterwarnings("ignore")  # of torch's own, of what it is to replace
def test_it_comes_to_the_same(world: rankdrill.World, work: Any) -> None:
    def body() -> Any:
        plain = work()
        with in_torchs_place() as called:
            ours = work()
        return plain == ours, plain is not None, set(called)

    assert all_alike(world.run(body, deadline=DEADLINE_S).unwrap()) == (True, True, {"all_gather_object"})
