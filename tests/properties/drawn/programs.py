"""What a drawn program is: data, from which its source is written and its truth told.

All ranks go through the same statements in the same order, each taking part in those that concern it: so a program
without a mistake can neither hang nor disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.torch_can import Can, can

__all__ = [
    "COLLECTED",
    "HELD",
    "OPS",
    "ROOTED",
    "Call",
    "Collect",
    "Exchange",
    "Family",
    "Key",
    "Loop",
    "Message",
    "Place",
    "Program",
    "Statement",
    "Visit",
]

_EVERY = (
    "all_reduce", "broadcast", "all_gather", "reduce", "gather", "scatter", "all_to_all_single", "reduce_scatter",
    "barrier", "all_gather_object", "broadcast_object_list", "gather_object", "all_gather_into_tensor",
)  # fmt: skip
OPS = tuple(op if op != "reduce_scatter" or can(Can.REDUCE_SCATTER) else "all_reduce" for op in _EVERY)
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter", "broadcast_object_list", "gather_object"})
HELD = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor"})
"""Those that may be asynchronous."""

Place = tuple[int, int]
"""Where a statement stands: which of the program's, and which within the loop there, else 0."""


@dataclass(frozen=True, slots=True)
class Family:
    """Groups that have no rank in common: a rank calls on its own."""

    parts: tuple[tuple[int, ...], ...]

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(sorted(rank for part in self.parts for rank in part))

    def of(self, rank: int) -> tuple[int, ...]:
        """The group of `rank`; nobody, if it is in none."""
        return next((part for part in self.parts if rank in part), ())


@dataclass(frozen=True, slots=True)
class Call:
    """A collective on each group of a family.

    `root` says which member is the root, counted round; a `held` one is asynchronous, and waited for after the
    statement behind it.
    """

    op: str
    family: int
    size: int = 4
    dtype: str = "float32"
    reduce_op: str = "SUM"
    root: int = 0
    held: bool = False

    def root_in(self, part: tuple[int, ...]) -> int:
        return part[self.root % len(part)]


@dataclass(frozen=True, slots=True)
class Message:
    """From one rank to another; with `requests` by isend and irecv, each waited for at once."""

    source: int
    target: int
    tag: int = 0
    size: int = 4
    requests: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """One rank sets a key, of this place and round, and others get it."""

    source: int
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Each rank sets a key of its own, and gets those of all others."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Each rank sends one message to the root, which takes them from anybody, under a tag of this place and round."""

    root: int
    size: int = 4


COLLECTED = 100
"""The first of the tags of what is collected: no other message has such."""
Statement = Call | Message | Key | Exchange | Collect


@dataclass(frozen=True, slots=True)
class Loop:
    """What is done again and again."""

    rounds: int
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Visit:
    """That a statement is come to: in which round of its loop, 0 outside of one."""

    place: Place
    round: int
    statement: Statement


@dataclass(frozen=True, slots=True)
class Program:
    """What `ranks` ranks do; the first of `families` is everybody."""

    ranks: int
    families: tuple[Family, ...]
    block: tuple[Statement | Loop, ...]

    def at(self, place: Place) -> Statement:
        found = self.block[place[0]]
        return found.body[place[1]] if isinstance(found, Loop) else found

    def rounds(self, place: Place) -> int:
        """How often the statement is come to."""
        found = self.block[place[0]]
        return found.rounds if isinstance(found, Loop) else 1

    def behind(self, place: Place) -> Place:
        """The next statement of the same block; it may be one that there is not."""
        top, inner = place
        return (top, inner + 1) if isinstance(self.block[top], Loop) else (top + 1, 0)

    @property
    def places(self) -> list[Place]:
        return [
            (top, inner)
            for top, found in enumerate(self.block)
            for inner in range(len(found.body) if isinstance(found, Loop) else 1)
        ]

    def visits(self) -> Iterator[Visit]:
        """All that is done, in order."""
        for top, found in enumerate(self.block):
            if isinstance(found, Loop):
                for number in range(found.rounds):
                    for inner, statement in enumerate(found.body):
                        yield Visit((top, inner), number, statement)
            else:
                yield Visit((top, 0), 0, found)

    def concerns(self, statement: Statement, rank: int) -> bool:
        """Whether `rank` takes part."""
        match statement:
            case Message(source=source, target=target):
                return rank in (source, target)
            case Key(source=source, targets=targets):
                return rank == source or rank in targets
            case Call(family=family):
                return rank in self.families[family].members
            case _:
                return True
