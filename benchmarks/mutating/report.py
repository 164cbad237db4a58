"""Tells what was noticed, module by module, and what was not, with the reason where there is one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutating.found import Mutant

__all__ = ["Reason", "print_report", "read_reasons"]

REASONS = Path(__file__).with_name("survivors.toml")
COLUMNS = ("module", "mutants", "killed", "of them late", "survived", "explained", "killed")


@dataclass(frozen=True)
class Reason:
    """Why mutants of `function` need not be noticed: those that have one of `lines`, or just lack it."""

    module: str
    function: str
    lines: tuple[str, ...]
    why: str

    def explains(self, mutant: Mutant) -> bool:
        return (mutant.module, mutant.function) == (self.module, self.function) and any(
            line in self.lines for line in mutant.added or mutant.removed
        )


def read_reasons() -> list[Reason]:
    """What `survivors.toml` says."""
    entries = tomllib.loads(REASONS.read_text()).get("survivor", [])
    return [Reason(each["module"], each["function"], tuple(each["lines"]), each["why"]) for each in entries]


def print_report(mutants: Sequence[Mutant], reasons: Sequence[Reason]) -> float:
    """Print it; returns the share of mutants that were killed."""
    tried = [mutant for mutant in mutants if mutant.tried]
    survivors = [mutant for mutant in tried if not mutant.noticed]
    for mutant in survivors:
        why = next((reason.why for reason in reasons if reason.explains(mutant)), None)
        print(f"\n{mutant.name}" + (": nothing reaches it" if mutant.unreached else ""))
        print(*(f"  - {line}" for line in mutant.removed), *(f"  + {line}" for line in mutant.added), sep="\n")
        print(f"  explained: {why}" if why else "  not explained")
    print()
    _print_table([COLUMNS, *_rows(tried, reasons)])
    for line in _stale({mutant.module for mutant in tried}, survivors, reasons):
        print(f"stale: {line}")
    if len(tried) < len(mutants):
        print(f"{len(mutants) - len(tried)} mutants were not tried")
    return _rate(tried)


def _rows(tried: Sequence[Mutant], reasons: Sequence[Reason]) -> Iterator[tuple[str, ...]]:
    modules = sorted({mutant.module for mutant in tried})
    for name, group in [*((name, [m for m in tried if m.module == name]) for name in modules), ("all", tried)]:
        left = [mutant for mutant in group if not mutant.noticed]
        explained = sum(any(reason.explains(mutant) for reason in reasons) for mutant in left)
        late = sum(mutant.timed_out for mutant in group)
        yield name, *map(str, (len(group), len(group) - len(left), late, len(left), explained)), f"{_rate(group):.1%}"


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        numbers = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *numbers]))


def _stale(modules: set[str], survivors: Sequence[Mutant], reasons: Sequence[Reason]) -> Iterator[str]:
    for reason in reasons:
        for line in reason.lines:
            one = Reason(reason.module, reason.function, (line,), reason.why)
            if reason.module in modules and not any(one.explains(mutant) for mutant in survivors):
                yield f"no mutant survives in {reason.module}, {reason.function}: {line}"


def _rate(mutants: Sequence[Mutant]) -> float:
    return sum(mutant.noticed for mutant in mutants) / len(mutants) if mutants else 1.0
