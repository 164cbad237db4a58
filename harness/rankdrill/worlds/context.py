"""What a rank knows of itself: handed to bodies that ask for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankdrill.worlds.processes.output import log_of

if TYPE_CHECKING:
    import torch
    from torch.distributed.distributed_c10d import Store

    from rankdrill.boundary import Boundary
    from rankdrill.worlds.job import Job

__all__ = ["RankContext"]


@dataclass
class RankContext:
    """What a rank knows of itself. `kept` lives as long as the rank does: a warm pytest session, say.

    `pause(value)` reports `value` as what the running job returned, or raised if it is an exception, and waits in the
    middle of the body for the next job, which it returns: for a body that goes on where it was. `left` says what a
    fresh rank would not have, in words: with anything in it the rank is not used for another test. `notes` are for
    the user to read. `moves` counts how often the rank has followed its controller to another directory, environment
    or path. `take_last_words()` has the stacks at a fatal signal go to the controller again, after somebody had them
    go elsewhere.
    """

    index: int
    world_size: int
    device: torch.device
    directory: Path
    store: Store
    boundary: Boundary
    group: Any  # the default process group that bodies find; None in a world without one
    pause: Callable[[Any], Job]
    take_last_words: Callable[[], None]
    kept: dict[str, Any] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    moves: int = 0

    @property
    def log(self) -> Path:
        """A file for lines that the controller is to see at once; see `World`'s `tell_log`."""
        return log_of(self.directory, self.index)
