"""What mutmut has found out, read from what it leaves behind."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutating.running import MUTATED

__all__ = ["Mutant", "read_mutants"]

# What its process ended with. Whatever is not here is a failure, if only one to collect the tests.
_SURVIVED, _UNREACHED = {0}, {5, 33}
_TIMED_OUT = {-24, 24, 36, 152}


@dataclass(frozen=True)
class Mutant:
    """One mistake. `removed` and `added` are the lines that it changes, without indentation."""

    name: str
    code: int | None
    removed: tuple[str, ...]
    added: tuple[str, ...]

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def function(self) -> str:
        """``blame``, ``Plan.parse``."""
        mangled = self.name.rpartition(".")[2].partition("__mutmut_")[0]
        return mangled.removeprefix("x_").removeprefix("x\u01c1").replace("\u01c1", ".")

    @property
    def tried(self) -> bool:
        return self.code is not None

    @property
    def timed_out(self) -> bool:
        return self.code in _TIMED_OUT

    @property
    def unreached(self) -> bool:
        return self.code in _UNREACHED

    @property
    def noticed(self) -> bool:
        return self.code is not None and self.code not in _SURVIVED | _UNREACHED


def read_mutants() -> list[Mutant]:
    """All mutants of the last run, tried or not."""
    return [mutant for meta in sorted(MUTATED.rglob("*.py.meta")) for mutant in _of_file(meta)]


def _of_file(meta: Path) -> list[Mutant]:
    codes: dict[str, int | None] = json.loads(meta.read_text())["exit_code_by_key"]
    source = meta.with_suffix("")
    lines = source.read_text().splitlines()
    spans: dict[str, list[int]] = json.loads(source.with_name(f"{source.name}.spans").read_text())["spans"]

    def text(function: str) -> list[str]:
        first, last = spans[function]
        return [line.strip().replace(function, "") for line in lines[first - 1 : last]]

    found = []
    for name, code in codes.items():
        function = name.rpartition(".")[2]
        original = text(f"{function.partition('__mutmut_')[0]}__mutmut_orig")
        changes = list(difflib.ndiff(original, text(function)))
        found.append(Mutant(name, code, _starting("- ", changes), _starting("+ ", changes)))
    return found


def _starting(mark: str, changes: list[str]) -> tuple[str, ...]:
    return tuple(change.removeprefix(mark) for change in changes if change.startswith(mark))
