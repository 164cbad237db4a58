"""The plan: which fault strikes which rank at which step. Immutable data, one line per fault; see docs/faults.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rankdrill.errors import PlanError
from rankdrill.faults.check import check_fault
from rankdrill.faults.strike import Number, When
from rankdrill.step import Kind, Step

__all__ = ["FIRST", "MAX_FAULTS", "Fault", "Plan", "What", "Where"]

MAX_FAULTS = 256  # of one plan: the ledger has room for so many counters (a test compares)
FIRST = 1


@dataclass(frozen=True, slots=True)
class Where:
    """Where a fault strikes. None stands for any rank, kind, op or target; `nth` counts from 1, None for every one.

    `pattern` is a glob over the step's target. A pattern without a slash is matched with the last part of a path.
    """

    rank: int | None
    when: When
    kind: Kind | None = None
    op: str | None = None
    pattern: str | None = None
    nth: int | None = FIRST

    def matches(self, step: Step, also: str = "") -> bool:
        """Whether `step` is one of these; `also` is a second name of its target (where a rename leads)."""
        if self.kind not in (None, step.kind) or self.op not in (None, step.op):
            return False
        return self.pattern is None or any(_match(name, self.pattern) for name in (step.target, also) if name)

    @property
    def step(self) -> str:
        """``file.rename on "*.part"``: the steps meant, without rank and count."""
        on = f" on {_quoted(self.pattern)}" if self.pattern is not None else ""
        return f"{self.kind or '*'}.{self.op or '*'}{on}"

    @property
    def count(self) -> str:
        """``#3``, ``every``, or nothing for the first."""
        return "every" if self.nth is None else f"#{self.nth}" if self.nth != FIRST else ""


@dataclass(frozen=True, slots=True)
class What:
    """What strikes: the strike's name and its arguments in order, defaults filled in."""

    name: str
    args: tuple[Number, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_number, self.args))})" if self.args else self.name


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Raises `PlanError` for one that cannot be: an unknown strike, or where it has no meaning."""

    where: Where
    what: What

    def __post_init__(self) -> None:
        args = check_fault(self)
        if args != self.what.args:
            object.__setattr__(self, "what", What(self.what.name, args))

    @classmethod
    def parse(cls, line: str) -> Fault:
        """The fault that `line` says, as ``str`` prints it. Raises `PlanError`."""
        from rankdrill.faults.grammar import parse_fault

        return parse_fault(line)

    def __str__(self) -> str:
        rank = "*" if self.where.rank is None else self.where.rank
        return f"rank {rank}: {self.what} {self.where.when} {self.where.step} {self.where.count}".rstrip()


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
        from rankdrill.faults.grammar import parse_plan

        return parse_plan(text)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))

    def to_json(self) -> str:
        """The plan as JSON; see docs/faults.md."""
        from rankdrill.faults.as_json import plan_to_json

        return plan_to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """The plan that `to_json` wrote. Raises `PlanError`."""
        from rankdrill.faults.as_json import plan_from_json

        return plan_from_json(text)

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


def _match(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or ("/" not in pattern and fnmatchcase(name.rpartition("/")[2], pattern))


def _quoted(pattern: str) -> str:
    # JSON's quoting; what a terminal might not show is escaped too.
    return json.dumps(pattern, ensure_ascii=not pattern.isprintable())


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
