"""How the ranks of a world meet: over a file of their own, also when a body calls `init_process_group` itself."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore, Store

from rankdrill.boundary import torch_seam
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.crossing import Boundary
from rankdrill.errors import UsageError
from rankdrill.worlds.processes.meeting_place import Meetings
from rankdrill.worlds.processes.messages import RankSpec

__all__ = ["MESH_RANKS", "Rendezvous", "connecting_when_needed", "launch_variables"]

MESH_RANKS = 48
"""Above so many ranks not every pair of them is connected at the start: of 256 that is 32 640 connections, and half
the time that the world takes. A pair connects when it first speaks."""
_LAZY = "TORCH_GLOO_LAZY_INIT"
_UNSET = -1  # torch's default for rank and world_size
ALREADY_THERE = (
    "init_process_group() gave the group that this rank already has; "
    "@pytest.mark.ranks(n, init=False) leaves making it to the test"
)
KEEPS_TIMEOUT = "that group keeps its timeout, {:g} s: gloo of this torch takes none later"


def launch_variables(spec: RankSpec) -> dict[str, str]:
    """The environment variables that torchrun sets for a worker, as they are in this world.

    Of one host, or of several where ranks share GPUs; see `rankdrill.worlds.hosts`. The store that `env://` meets over
    is not an agent's: nobody listens on MASTER_PORT until a rank does.
    """
    seat = spec.seat
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(spec.port),
        "RANK": str(spec.rank),
        "LOCAL_RANK": str(seat.local_rank),
        "GROUP_RANK": str(seat.host),
        "ROLE_RANK": str(spec.rank),
        "ROLE_NAME": "default",
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(seat.local_world_size),
        "GROUP_WORLD_SIZE": str(seat.hosts),
        "ROLE_WORLD_SIZE": str(spec.world_size),
        "TORCHELASTIC_RUN_ID": spec.run,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        **seat.nccl_variables(),
    }


@contextmanager
def connecting_when_needed() -> Iterator[None]:
    """Have gloo connect two ranks when they first speak; torch before 2.8 does not know of it."""
    before = os.environ.get(_LAZY)
    os.environ[_LAZY] = before or "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_LAZY]


class Rendezvous:
    """Makes the default group of one rank, and stands between a body and torch's `init_process_group`.

    A body that makes the default group itself, where it has one already, is given that; one that has destroyed it, or
    is in a world without, makes a real one. `env://` meets over the world's own store, under a new prefix each time,
    so that it needs no port and may be done again.
    """

    def __init__(self, spec: RankSpec, store: Store, boundary: Boundary) -> None:
        self._spec = spec
        self._store = store
        self._meetings = 0
        self._bodies_own = Meetings(store, spec.rank, spec.world_size, boundary)
        self._timeout = timedelta(seconds=spec.group_timeout)
        self._changed_timeout = False
        self.notes: list[str] = []

    def make_group(self) -> None:
        """Make the default group that bodies find."""
        with connecting_when_needed() if self._spec.world_size > MESH_RANKS else nullcontext():
            dist.init_process_group(
                self._spec.backend,
                store=self._next_store(),
                rank=self._spec.rank,
                world_size=self._spec.world_size,
                timeout=self._timeout,
            )

    def install(self) -> None:
        """Take the place of `init_process_group`, for all who import or look it up from now on."""
        torch_seam.replace_env_rendezvous(self._env_rendezvous)
        given = self._given_again(dist.init_process_group)
        dist.init_process_group = given
        distributed_c10d.init_process_group = given
        dist.rendezvous = self._compared_first(dist.rendezvous)  # type: ignore[attr-defined]  # torch's types leave it out

    def begin(self) -> None:
        """A new body: the group gives up when it did at first."""
        if self._changed_timeout and dist.is_initialized():
            self._set_timeout(self._timeout)
            self._changed_timeout = False

    def _next_store(self) -> Store:
        # Keys of an earlier meeting would lead to addresses that nobody listens on any more.
        self._meetings += 1
        return PrefixStore(f"meeting-{self._meetings}", self._store)

    def _given_again(self, real: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(real)
        def init_process_group(
            backend: Any = None,
            init_method: str | None = None,
            timeout: timedelta | None = None,
            world_size: int = _UNSET,
            rank: int = _UNSET,
            *args: Any,
            **kwargs: Any,
        ) -> None:
            __tracebackhide__ = True
            if not self._may_give():
                make = functools.partial(real, backend, init_method, timeout, world_size, rank, *args, **kwargs)
                self._bodies_own.meet(init_method, world_size, make)
                return
            self._check(backend, world_size, rank)
            self.notes.append(ALREADY_THERE)
            if timeout is not None:
                self._changed_timeout = self._set_timeout(timeout)
                if not self._changed_timeout:
                    self.notes.append(KEEPS_TIMEOUT.format(self._timeout.total_seconds()))

        return init_process_group

    def _compared_first(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """By `torch.distributed.rendezvous` others meet than groups: `torch.distributed.rpc`."""

        @functools.wraps(real)
        def rendezvous(url: str, rank: int = _UNSET, world_size: int = _UNSET, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if isinstance(url, str):
                self._bodies_own.compare(url, world_size)
            return real(url, rank, world_size, **kwargs)

        return rendezvous

    def _may_give(self) -> bool:
        # As often as it is asked for: a test may have started processes more than once, each with an init of its own.
        return self._spec.init and isinstance(dist.group.WORLD, DrilledGroup)

    def _check(self, backend: Any, world_size: int, rank: int) -> None:
        spec = self._spec
        wrong = ""
        if backend not in (None, "", "undefined", dist.get_backend(), spec.backend):
            wrong = repr(str(backend))
        elif world_size not in (_UNSET, spec.world_size):
            wrong = f"world_size={world_size}"
        elif rank not in (_UNSET, spec.rank):
            wrong = f"rank={rank}"
        if wrong:
            raise UsageError(
                f"init_process_group({wrong}) on rank {spec.rank} of {spec.world_size} over {spec.backend}, which has "
                f"its group already; @pytest.mark.ranks({spec.world_size}, init=False) leaves making it to the test"
            )

    def _set_timeout(self, timeout: timedelta) -> bool:
        group: Any = dist.group.WORLD
        changed = torch_seam.set_timeout(group, timeout)
        if changed and isinstance(group, DrilledGroup):
            group.timeout = timeout.total_seconds()
        return changed

    def _env_rendezvous(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def meet(url: str, *args: Any, **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
            asked = dict(parse_qsl(urlparse(url).query))
            rank = asked.get("rank", os.environ.get("RANK", ""))
            size = asked.get("world_size", os.environ.get("WORLD_SIZE", ""))
            if (rank, size) != (str(self._spec.rank), str(self._spec.world_size)):
                yield from real(url, *args, **kwargs)  # another world than this one: its own affair
            else:
                yield self._next_store(), self._spec.rank, self._spec.world_size

        return meet
