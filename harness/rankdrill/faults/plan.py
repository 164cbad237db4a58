"""The plan: which fault strikes which rank at which step. Immutable data, one line per fault; see docs/faults.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rankdrill.errors import PlanError
from rankdrill.faults.as_json import faults_from_json, faults_to_json
from rankdrill.faults.fault import Fault
from rankdrill.faults.grammar import parse_faults

__all__ = ["MAX_FAULTS", "Plan"]

MAX_FAULTS = 256  # of one plan: the ledger has room for so many counters (a test compares)


@dataclass(frozen=True, slots=True)
class Plan:
    """Faults, by position. Printed one per line; ``Plan.parse(str(plan)) == plan``.

    Several faults may strike one step: the first in the plan is the outermost.

        Plan.parse('rank 2: kill before collective.all_reduce #3')
    """

    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "faults", tuple(self.faults))
        if len(self.faults) > MAX_FAULTS:
            raise PlanError(f"a plan has at most {MAX_FAULTS} faults, this one {len(self.faults)}; split it in several")

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read faults, one per line; blank lines and comments (from ``#`` and a space on) are passed over.

        Raises `PlanError`, with the line, what is wrong with it, and what to write instead.
        """
        return cls(tuple(parse_faults(text)))

    def __repr__(self) -> str:
        return f"Plan.parse({str(self)!r})"

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))

    def to_json(self) -> str:
        """The plan as JSON; see docs/faults.md."""
        return faults_to_json(self.faults)

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """The plan that `to_json` wrote. Raises `PlanError`."""
        return cls(tuple(faults_from_json(text)))

    def for_rank(self, rank: int) -> tuple[tuple[int, Fault], ...]:
        """The faults that `rank` must arm, each with its position in the plan."""
        return tuple((index, fault) for index, fault in enumerate(self.faults) if fault.where.rank in (None, rank))

    def check(self, world_size: int) -> None:
        """Raise `PlanError` if a fault names a rank that a world of `world_size` ranks does not have."""
        for fault in self.faults:
            if fault.where.rank is not None and fault.where.rank >= world_size:
                raise PlanError(
                    f"{str(fault)!r} names rank {fault.where.rank}, but the world has {world_size} "
                    f"rank{'s' if world_size > 1 else ''}: 0 to {world_size - 1}"
                )

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __len__(self) -> int:
        return len(self.faults)
