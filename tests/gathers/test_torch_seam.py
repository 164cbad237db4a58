"""The private torch APIs that the gathers use are still what they were."""

from __future__ import annotations

import datetime
import gc
import os
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import rankdrill
from rankdrill.gathers import all_gather
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.network.departed import departed
from tests.gathers.attempts import TIMEOUT_S, all_alike


def test_a_companion_leaves_no_trace_in_torchs_tables(world: rankdrill.World) -> None:
    def body() -> Any:
        tables = ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg", "group_count")
        before = [repr(getattr(c10d._world, name)) for name in tables]
        all_gather(1, timeout=TIMEOUT_S)
        return before == [repr(getattr(c10d._world, name)) for name in tables]

    assert all_alike(world.run(body).unwrap()) is True


def test_a_made_group_works_under_any_name(world: rankdrill.World) -> None:
    def body() -> Any:
        store = torch_seam.store_of(dist.group.WORLD)
        seconds = datetime.timedelta(seconds=TIMEOUT_S)
        group = torch_seam.make_group("any name/7", store, [0, 1, 2, 3], dist.get_rank(), "gloo", seconds)
        tensor = torch.full((1,), dist.get_rank())
        options = torch_seam.BroadcastOptions()
        options.rootRank, options.timeout = 2, seconds
        group.broadcast([tensor], options).wait()
        return tensor.item(), torch_seam.cpu_backend(dist.group.WORLD)

    assert all_alike(world.run(body).unwrap()) == (2, "gloo")


def test_what_a_companion_sent_goes_after_it(world: rankdrill.World, line: str) -> None:
    """Else torch 2.6 may wait for ever: for its own thread, which waits for the GIL to free a tensor."""

    def body() -> Any:
        all_gather(1, timeout=TIMEOUT_S)
        channel = channel_of()
        order: list[str] = []
        weakref.finalize(channel.line._pg, order.append, "group")
        if channel.line._operands:
            weakref.finalize(channel.line._operands[-1][0], order.append, "tensor")
        channel.next_generation()
        return order, all_gather(1, timeout=TIMEOUT_S)

    # A group of our own has no threads, and keeps nothing.
    assert all_alike(world.run(body).unwrap()) == (["group", "tensor"] if line == "gloo" else ["group"], [1] * 4)


def test_what_a_companion_sent_that_is_large_goes_after_it_and_its_memory_before(world: rankdrill.World) -> None:
    def body() -> Any:
        all_gather(1, timeout=TIMEOUT_S)
        channel = channel_of()
        channel.line.open_bulk(TIMEOUT_S)
        sent = torch.full((50_000,), dist.get_rank(), dtype=torch.uint8)
        channel.line.finish([channel.line.broadcast(sent, 2, TIMEOUT_S)], TIMEOUT_S)
        order: list[str] = []
        (kept,) = channel.line._lent.arrived
        weakref.finalize(kept, order.append, "tensor")
        weakref.finalize(channel.line._bulk, order.append, "group")
        held = kept.untyped_storage().nbytes()
        del kept
        channel.line.close_bulk()
        channel.next_generation()
        return order, held, sent[-1].item(), all_gather(1, timeout=TIMEOUT_S)

    assert all_alike(world.run(body).unwrap()) == (["group", "tensor"], 0, 2, [1] * 4)


def test_a_companion_goes_with_its_group(world: rankdrill.World) -> None:
    def body() -> bool:
        group = dist.new_group([0, 1, 2, 3])
        dist.barrier()  # the first one opens the driver of a GPU, if there is one, for good
        before = len(os.listdir("/proc/self/fd"))
        all_gather(1, group=group, timeout=TIMEOUT_S)
        connected = channel_of(group).line.connected
        dist.barrier()
        dist.destroy_process_group(group)
        del group
        gc.collect()
        return connected and len(os.listdir("/proc/self/fd")) <= before

    assert all_alike(world.run(body).unwrap()) is True


def test_gloo_says_where_each_member_listens_and_listens_there(world: rankdrill.World) -> None:
    """Else a rank that is gone before the first gather is waited for as long as the group waits."""

    def body() -> Any:
        groups = [dist.group.WORLD, dist.new_group([0, 1, 2, 3]), dist.new_group([3, 1])]
        stores = [torch_seam.store_of(group) for group in groups[: 3 if dist.get_rank() in (1, 3) else 2]]
        found = [torch_seam.gloo_address(store, rank) for store in stores for rank in range(2)]
        shown = [departed(store, rank) for store in stores for rank in range(2)]
        nobody = torch_seam.gloo_address(stores[0], 4)
        dist.barrier()
        return [address[0] for address in found if address], len(set(found)) == len(found), set(shown), nobody

    for rank, told in enumerate(world.run(body).unwrap()):
        assert told == (["127.0.0.1"] * (6 if rank in (1, 3) else 4), True, {None}, None)


def test_the_tables_hold_the_store_that_a_group_may_not_be_asked_for(world: rankdrill.World) -> None:
    def body() -> Any:
        groups: list[Any] = [dist.group.WORLD, dist.new_group([0, 1, 2, 3])]
        stores = [c10d._world.pg_map[group][1] for group in groups]
        found = [torch_seam.gloo_address(store, 1) for store in stores]
        same = found == [torch_seam.gloo_address(torch_seam.store_of(group), 1) for group in groups]
        dist.barrier()
        return None not in found, same

    assert all_alike(world.run(body).unwrap()) == (True, True)


def test_the_timeout_of_a_group(world: rankdrill.World) -> None:
    def body() -> Any:
        group = dist.new_group(timeout=datetime.timedelta(seconds=77))
        return torch_seam.timeout_of(group), torch_seam.timeout_of(None)

    assert all_alike(world.run(body).unwrap()) == (77.0, 1800.0)
