"""Where a fault strikes, and what does: the words of a plan, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rankdrill.faults.strike import Number, When
from rankdrill.step import Kind, Step

__all__ = ["FIRST", "What", "Where"]

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


def _match(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or ("/" not in pattern and fnmatchcase(name.rpartition("/")[2], pattern))


def _quoted(pattern: str) -> str:
    # JSON's quoting; what a terminal might not show is escaped too.
    return json.dumps(pattern, ensure_ascii=not pattern.isprintable())


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
