"""What a controller asks of a rank, and what the rank answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Job", "Place", "Raised", "RankSpec", "Report", "Returned", "Up", "dump", "load"]


@dataclass(frozen=True, slots=True)
class RankSpec:
    """Everything a fresh rank is told; travels as JSON through the template."""

    rank: int
    world_size: int
    backend: str
    device: str
    directory: str
    group_timeout: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a body runs: what a rank takes over from its controller before each run."""

    sys_path: tuple[str, ...]
    cwd: str
    environ: dict[str, str]


@dataclass(frozen=True, slots=True)
class Job:
    """One body to run. With `with_context` it is given the rank's `RankContext` first.

    A world in which a collective failed is thrown away, unless `in_step` says that the caller sees to it that its
    ranks are in step afterwards, as a drill does whose next call has to work.
    """

    body: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    plan: Plan | None = None
    with_context: bool = False
    in_step: bool = False


@dataclass(frozen=True, slots=True)
class Up:
    """The rank is initialised and waits for jobs."""

    pid: int


@dataclass(frozen=True, slots=True)
class Returned:
    """The body returned; `value` is pickled so that a value that cannot be loaded spoils nothing else."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised. `error` is the pickled exception, empty if it cannot be pickled and loaded again."""

    error: bytes
    traceback: str
    type_name: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """How one job ended on one rank.

    `collectives` counts what the rank issued on the default group so far: ranks that differ are out of step.
    """

    result: Returned | Raised
    collectives: int
    at_ns: int


def dump(message: Any) -> bytes:
    """Pickle `message`; functions that cannot be imported elsewhere travel by value."""
    return bytes(cloudpickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def load(raw: bytes) -> Any:
    """Unpickle what this run's own other end sent."""
    return pickle.loads(raw)
