"""The private torch APIs that recording needs beside those of the boundary; `tests/recording/test_torch_seam.py` fails
when one changes.

- ``distributed_c10d._world``, its tables, and the C++ registry: where a group that was made before is to be found from
  now on as the one that is recorded.
- ``_get_sequence_number_for_group``: how many collectives such a group has seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c
from torch.distributed import distributed_c10d as c10d

from rankdrill.boundary.patch import Patch

__all__ = ["backend_of", "calls_so_far", "going_to", "store_of", "wrap_groups_there"]


def wrap_groups_there(wrap: Callable[[Any, tuple[int, ...]], Any]) -> dict[int, tuple[Any, Any]]:
    """Have torch give `wrap(group, global_ranks)` to who asks for a group that is there already.

    Returns, by the identity of each group, itself and what stands for it: who holds the group itself goes on to use
    that, and torch still knows it.
    """
    world = c10d._world
    tables: list[dict[Any, Any]] = [world.pg_map, world.pg_group_ranks, world.pg_backend_config, world.pg_to_tag]
    found: dict[int, tuple[Any, Any]] = {}
    for group in [each for each in world.pg_map if isinstance(each, dist.ProcessGroup)]:
        places: Any = world.pg_group_ranks[group]
        wrapped = wrap(group, tuple(sorted(places, key=places.__getitem__)))
        if wrapped is group:
            continue
        found[id(group)] = group, wrapped
        for table in tables:
            if group in table:
                table[wrapped] = table[group]
        c._unregister_process_group(wrapped.group_name)
        c._register_process_group(wrapped.group_name, wrapped)
        if group is world.default_pg:
            # What is shut down at the end is what stands here, once.
            world.pg_names[wrapped] = world.pg_names.pop(group)
            world.default_pg = wrapped
    return found


def going_to(found: dict[int, tuple[Any, Any]], methods: Iterable[str], closed: Callable[[], bool]) -> Iterator[Patch]:
    """What has the calls of `methods` on groups of `wrap_groups_there` go to what stands for them, unless `closed`."""

    def make(name: str, original: Any) -> Any:
        @functools.wraps(original)
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            pair = found.get(id(group))
            if pair is None or closed():
                return original(group, *args, **kwargs)
            return getattr(pair[1], name)(*args, **kwargs)

        return call

    for name in methods:
        if hasattr(dist.ProcessGroup, name):
            yield Patch(dist.ProcessGroup, name, functools.partial(make, name))


def calls_so_far(group: Any) -> int:
    """How many collectives torch has counted on `group`; -1 where its backend counts none."""
    try:
        return int(group._get_sequence_number_for_group())
    except (RuntimeError, AttributeError):
        return -1


def store_of(group: Any) -> Any:
    """The store that the ranks of the default group `group` met over; None where torch does not say."""
    known: Any = c10d._world.pg_map.get(group)
    return known[1] if known is not None else None


def backend_of(group: Any) -> str:
    """The backend, or backends, of `group`: ``gloo``, ``cpu:gloo,cuda:nccl``."""
    return str(c10d._world.pg_backend_config.get(group, ""))
