"""Private copies of the package, each with at most one mistake in it."""

from __future__ import annotations

import compileall
import importlib.util
import shutil
from pathlib import Path

from benchmarks.holding.population import SOURCES, Mutant

__all__ = ["Copies"]

_PACKAGE = SOURCES.name


class Copies:
    """Makes copies below `scratch`, a directory of its own; compiled once, or every run would compile everything."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._made = 0
        self._correct = scratch / "correct" / _PACKAGE
        shutil.copytree(SOURCES, self._correct, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(self._correct, quiet=1)

    def make(self, mutant: Mutant | None) -> Path:
        """A directory with the package, for the front of the path where modules are looked for."""
        self._made += 1
        room = self._scratch / f"copy-{self._made}"
        shutil.copytree(self._correct, room / _PACKAGE)
        if mutant is not None:
            changed = room / _PACKAGE / mutant.path
            Path(importlib.util.cache_from_source(str(changed))).unlink()
            changed.write_text(changed.read_text().replace(mutant.was, mutant.becomes))
        return room
