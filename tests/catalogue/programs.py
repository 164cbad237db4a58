"""What a program of the catalogue is, what is true of it, and where they all are.

A program is a function of a `Rank` that uses ``torch.distributed`` as any script does. Its truth stands beside it: the
decorator says which kind of mistake it makes and who makes it, and the guilty lines end in a comment, ``culprit``. Of
several such lines each is a right answer: of a call that is missing, the line where it should have been made, the
line by which the rank went past it, and the next call that it made instead.

Groups that live as long as the program are no leak: meshes and libraries make such. A leaked group is one of many that
the program makes again and again.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch.distributed import ProcessGroup
    from torch.distributed.distributed_c10d import Store

__all__ = [
    "KINDS",
    "Body",
    "Program",
    "Rank",
    "Truth",
    "catalogue",
    "correct",
    "marked_lines",
    "mistake",
    "modules",
    "program_named",
]

KINDS = (
    "call ordering",
    "missing call",
    "extra call",
    "operator mismatch",
    "root mismatch",
    "datatype mismatch",
    "size mismatch",
    "group mismatch",
    "deadlock",
    "unmatched message",
    "message race",
    "request leak",
    "leaked group",
    "input hazard",
    "memory layout",
    "lost rank",
    "missing key",
    "lost update",
    "stuck rank",
)
_MARK = "# culprit"
_SHELVES = ("mistakes", "correct")


@dataclass(frozen=True, slots=True)
class Rank:
    """What a program knows of the rank it runs on.

    `group` is the default process group; `store` and `directory` are shared by all ranks, and empty at first.
    """

    index: int
    world_size: int
    group: ProcessGroup
    store: Store
    directory: Path


Body = Callable[[Rank], Any]


@dataclass(frozen=True, slots=True)
class Truth:
    """What is wrong with a program.

    `culprits` made the mistake; where ranks disagree and nobody can say who is right it is empty, and `between` says
    who they are. `lines` are right answers to where. `also` lists kinds that are as right as `kind`: of two ranks,
    one of which makes a call that the other does not, who is to say whether it is extra or missing?
    """

    kind: str
    culprits: tuple[int, ...]
    between: tuple[int, ...]
    lines: frozenset[int]
    also: tuple[str, ...] = ()

    @property
    def ranks(self) -> frozenset[int]:
        """Whom a right verdict names."""
        return frozenset(self.culprits or self.between)

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.kind, *self.also)


@dataclass(frozen=True, slots=True)
class Program:
    """A body for `ranks` ranks, and what is wrong with it: None if nothing is. `torch` is the oldest to run it with."""

    body: Body
    ranks: int
    truth: Truth | None
    torch: tuple[int, int]

    @property
    def name(self) -> str:
        """``missing.validation_on_some``."""
        return f"{self.body.__module__.rpartition('.')[2]}.{self.body.__name__}"

    @property
    def file(self) -> str:
        return self.body.__code__.co_filename

    @property
    def runs_here(self) -> bool:
        """Whether this machine's torch is new enough: an older one fails, and that says nothing about the program."""
        major, minor, *_ = version("torch").split(".")
        return (int(major), int(minor)) >= self.torch

    @property
    def place(self) -> tuple[str, str]:
        """The module and the name that a process finds it by."""
        return self.body.__module__, self.body.__name__


def mistake(
    kind: str,
    *,
    ranks: int,
    culprits: tuple[int, ...] = (),
    between: tuple[int, ...] = (),
    also: tuple[str, ...] = (),
    torch: tuple[int, int] = (2, 6),
) -> Callable[[Body], Program]:
    """The function below makes a mistake of `kind`; see `Truth`.

    Without `culprits` all ranks disagree, or those that are in `between`.
    """
    for known in (kind, *also):
        if known not in KINDS:
            raise ValueError(f"{known!r} is no kind of mistake; choose from {', '.join(KINDS)}")
    involved = culprits or between or tuple(range(ranks))
    if not set(involved) <= set(range(ranks)):
        raise ValueError(f"ranks {involved} are not all among {ranks}")

    def made(body: Body) -> Program:
        lines = marked_lines(body)
        if not lines:
            raise ValueError(f"{body.__qualname__} has no line that ends in {_MARK!r}")
        return Program(body, ranks, Truth(kind, culprits, () if culprits else involved, lines, also), torch)

    return made


def correct(*, ranks: int, torch: tuple[int, int] = (2, 6)) -> Callable[[Body], Program]:
    """The function below has nothing wrong with it on `ranks` ranks."""

    def made(body: Body) -> Program:
        if marked_lines(body):
            raise ValueError(f"{body.__qualname__} is called correct and has a line that ends in {_MARK!r}")
        return Program(body, ranks, None, torch)

    return made


def catalogue(*shelves: str) -> tuple[Program, ...]:
    """All programs of ``mistakes`` and ``correct``, or of the one that is named, in the order of their files."""
    return tuple(program for shelf in shelves or _SHELVES for program in _on_shelf(f"{__package__}.{shelf}"))


def modules() -> list[str]:
    """What ranks had better have imported before a program runs, and is timed."""
    # DistributedDataParallel and functional collectives import it when they are first used, which takes seconds.
    return [*sorted({program.body.__module__ for program in catalogue()}), "torch._dynamo"]


def program_named(place: tuple[str, str]) -> Program:
    """The program at `Program.place`."""
    module, name = place
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, Program)
    return found


def _on_shelf(package: str) -> Iterator[Program]:
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        with warnings.catch_warnings():
            # torch.distributed.optim compiles with torch.jit, which torch 2.13 deprecates.
            warnings.simplefilter("ignore", DeprecationWarning)
            module = importlib.import_module(found.name)
        yield from (value for value in vars(module).values() if isinstance(value, Program))


def marked_lines(body: Body) -> frozenset[int]:
    source, first = inspect.getsourcelines(body)
    return frozenset(number for number, line in enumerate(source, first) if line.rstrip().endswith(_MARK))
