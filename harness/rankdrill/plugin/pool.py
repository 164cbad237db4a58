"""The pool: one warm world per size, backend and device, for the whole session."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankdrill.errors import WorldError
from rankdrill.plugin import rank_session_calls as calls
from rankdrill.plugin.marker import RanksMark
from rankdrill.worlds import World
from rankdrill.worlds.job import Job

__all__ = ["WorldKey", "WorldPool"]

MAX_WARM = 4  # worlds kept; the least recently used is thrown away first
FINISH_S = 30.0


@dataclass(frozen=True, slots=True)
class WorldKey:
    """What tests must have in common to share a world."""

    n: int
    engine: str
    backend: str
    device: str

    @classmethod
    def of(cls, mark: RanksMark, n: int) -> WorldKey:
        return cls(n, mark.engine, mark.backend, mark.device)


@dataclass
class WorldPool:
    """Worlds by key, in the order of their last use."""

    stream: bool = False
    preload: tuple[str, ...] = ()
    _worlds: dict[WorldKey, World] = field(default_factory=dict)

    def get(self, key: WorldKey) -> World:
        """The world for `key`; raises `UsageError` if this machine cannot have it."""
        world = self._worlds.pop(key, None)
        if world is None:
            world = World(
                key.n,
                engine=key.engine,
                backend=key.backend,
                device=key.device,
                stream=self.stream,
                preload=self.preload,
            )
        self._worlds[key] = world
        while len(self._worlds) > MAX_WARM:
            self._end(self._worlds.pop(next(iter(self._worlds))))
        return world

    def warm(self, key: WorldKey) -> bool:
        """Whether ranks for `key` are up."""
        return key in self._worlds and self._worlds[key].warm

    def close(self) -> None:
        """End every world, after its ranks have torn down their fixtures."""
        for world in self._worlds.values():
            self._end(world)
        self._worlds.clear()

    def _end(self, world: World) -> None:
        try:
            if world.warm:
                world.run_job(Job(calls.finish, with_context=True), deadline=FINISH_S)
        except WorldError:
            pass  # the template is gone; so are the ranks
        finally:
            world.discard()
