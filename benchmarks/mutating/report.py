"""Tells what was noticed, module by module, and what was not, with the reason where there is one."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutating.found import Mutant
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["Reason", "print_report", "read_reasons"]

REASONS = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True)
class Reason:
    """Why mutants of `function` need not be noticed: those that add one of `lines`."""

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
    entries = tomllib.loads(REASONS.read_text())["survivor"]
    return [Reason(each["module"], each["function"], tuple(each["lines"]), each["why"]) for each in entries]


def print_report(mutants: Sequence[Mutant], reasons: Sequence[Reason], console: Console) -> float:
    """Print it; returns the share of mutants that were noticed."""
    tried = [mutant for mutant in mutants if mutant.tried]
    survivors = [mutant for mutant in tried if not mutant.noticed]
    for mutant in survivors:
        why = next((reason.why for reason in reasons if reason.explains(mutant)), "")
        console.print(f"\n[bold]{escape(mutant.name)}[/]" + (f"\n  explained: {escape(why)}" if why else ""))
        for sign, lines in (("-", mutant.removed), ("+", mutant.added)):
            for line in lines:
                console.print(f"  {sign} {escape(line)}", highlight=False)
    console.print(_table(tried, survivors, reasons))
    modules = {mutant.module for mutant in tried}
    for reason in reasons:
        for line in reason.lines:
            one = Reason(reason.module, reason.function, (line,), reason.why)
            if reason.module in modules and not any(one.explains(mutant) for mutant in survivors):
                console.print(f"stale: no survivor in {reason.module}, {reason.function}: {escape(line)}")
    if len(tried) < len(mutants):
        console.print(f"{len(mutants) - len(tried)} mutants were not tried")
    return _rate(tried)


def _table(tried: Sequence[Mutant], survivors: Sequence[Mutant], reasons: Sequence[Reason]) -> Table:
    table = Table("module", "mutants", "noticed", "of these late", "survived", "explained", "rate")
    groups = [(name, [each for each in tried if each.module == name]) for name in sorted({m.module for m in tried})]
    for name, group in [*groups, ("all", list(tried))]:
        left = [mutant for mutant in group if mutant in survivors]
        explained = sum(any(reason.explains(mutant) for reason in reasons) for mutant in left)
        late = sum(mutant.timed_out for mutant in group)
        counts = (len(group), len(group) - len(left), late, len(left), explained)
        table.add_row(name.removeprefix("rankdrill."), *map(str, counts), f"{_rate(group):.1%}")
    return table


def _rate(mutants: Sequence[Mutant]) -> float:
    return sum(mutant.noticed for mutant in mutants) / len(mutants) if mutants else 1.0
