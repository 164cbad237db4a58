"""Reads a plan's text.

fault      = "rank" (NUMBER | "*") ":" strike when step ["on" pattern] [occurrence]
strike     = NAME ["(" [number {"," number}] ")"]
when       = "before" | "after" | "at"
step       = (kind | "*") "." (op | "*")
pattern    = a glob in double quotes, with JSON's escapes
occurrence = "#" NUMBER | "every"
"""

from __future__ import annotations

import json
import re
from typing import NoReturn, TypeVar

from rankdrill.errors import PlanError
from rankdrill.faults.check import closest
from rankdrill.faults.fault import Fault
from rankdrill.faults.strike import Number, When
from rankdrill.faults.where import FIRST, What, Where
from rankdrill.step import Kind

__all__ = ["MAX_LINE", "parse_fault", "parse_faults"]

_Word = TypeVar("_Word", When, Kind)

MAX_LINE = 10_000  # characters: more is not a fault but a wrong file
_EXAMPLE = "rank 2: kill before collective.all_reduce #3"

_RANK = re.compile(r"rank\s+(\*|[-+]?\d{1,9})\s*:\s*")
_STRIKE = re.compile(r"([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*")
_WHEN = re.compile(r"(\w+)\s+")
_STEP = re.compile(r"([\w*]+)\.([\w*]+)\s*")
_ON = re.compile(r"on\s+(?=\")")
_COUNT = re.compile(r"(?:#(-?\d{1,18})|(every))(?!\w)\s*")
_COMMENT = re.compile(r"#(?!-?\d)")


def parse_faults(text: str) -> list[Fault]:
    """The faults of a plan; see `Plan.parse`."""
    if not isinstance(text, str):
        raise PlanError(f"a plan is text, not {type(text).__name__}; write one fault per line, as in {_EXAMPLE!r}")
    faults = []
    # Not splitlines: a pattern may hold characters that Unicode counts as line ends.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not _COMMENT.match(line.lstrip()):
            try:
                faults.append(parse_fault(line))
            except PlanError as error:
                raise PlanError(f"line {number} of the plan: {error}") from None
    return faults


def parse_fault(line: str) -> Fault:
    """The fault that `line` says, as ``str`` prints it. Raises `PlanError`."""
    if len(line) > MAX_LINE:
        raise PlanError(f"a fault of {len(line)} characters; {MAX_LINE} are the most")
    scanner = _Scanner(line.strip())
    rank = scanner.take(_RANK, "`rank N:` or `rank *:`")[1]
    name, args = scanner.take(_STRIKE, "a strike's name").groups()
    when = _one_of(When, scanner.take(_WHEN, "before, after or at")[1], "is no place")
    kind, op = scanner.take(_STEP, "a step, as in file.rename").groups()
    pattern = scanner.quoted() if scanner.maybe(_ON) else None
    count = scanner.maybe(_COUNT)
    scanner.end()
    nth = FIRST if count is None else None if count[2] else int(count[1])
    where = Where(
        None if rank == "*" else int(rank),
        when,
        None if kind == "*" else _one_of(Kind, kind, "is no kind of step"),
        None if op == "*" else op,
        pattern,
        nth,
    )
    try:
        return Fault(where, What(name, _numbers(args)))
    except PlanError as error:
        raise PlanError(f"{line.strip()!r}: {error}") from None


class _Scanner:
    """Takes a line apart from left to right."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.at = 0

    def maybe(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.line, self.at)
        if found:
            self.at = found.end()
        return found

    def take(self, pattern: re.Pattern[str], wanted: str) -> re.Match[str]:
        return self.maybe(pattern) or self.refuse(f"expected {wanted}")

    def quoted(self) -> str:
        try:
            text, self.at = json.JSONDecoder().raw_decode(self.line, self.at)
        except ValueError as error:
            self.refuse(f"the pattern is not well quoted ({error}); write it as JSON would")
        while self.at < len(self.line) and self.line[self.at].isspace():
            self.at += 1
        return str(text)

    def end(self) -> None:
        rest = self.line[self.at :]
        if rest and not _COMMENT.match(rest):
            self.refuse('expected the end, `on "pattern"`, `#N` or `every`')

    def refuse(self, what: str) -> NoReturn:
        rest = self.line[self.at : self.at + 30] or "the end"
        raise PlanError(f"{self.line!r}: {what} at {rest!r}; a fault reads {_EXAMPLE!r}")


def _one_of(choices: type[_Word], word: str, complaint: str) -> _Word:
    try:
        return choices(word)
    except ValueError:
        raise PlanError(f"{word!r} {complaint}; {closest(word, choices)}") from None


def _numbers(text: str | None) -> tuple[Number, ...]:
    if not text or not text.strip():
        return ()
    return tuple(_number(part.strip()) for part in text.split(","))


def _number(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise PlanError(f"{text!r} is no number; a strike's arguments are numbers, as in oversize(65536)") from None
