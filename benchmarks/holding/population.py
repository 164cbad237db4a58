"""The population: mistakes in rankdrill's own gathers, written down in mutants/*.toml, a file for each of their rooms.

A mutant is the name of a file below harness/rankdrill/gathers, a text that stands there once, and what stands there
instead. Left out are mistakes that break no promise: what only a damaged file, a machine more or a GPU would show.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from benchmarks.holding.adapters import ADAPTERS

from rankdrill.conformance import Promise

__all__ = ["LEAST", "SOURCES", "Mutant", "population", "what_is_wrong_with"]

LEAST = 60
SOURCES = Path(__file__).parents[2] / "harness" / "rankdrill"
_WRITTEN = Path(__file__).parent / "mutants"


@dataclass(frozen=True)
class Mutant:
    """One mistake: in `file` stands `becomes` instead of `was`. It is asked `through` adapters, and must break a
    promise.
    """

    name: str
    file: str
    was: str
    becomes: str
    mistake: str
    through: tuple[str, ...]
    breaks: Promise

    @property
    def path(self) -> Path:
        """The file it is made in, relative to the package."""
        return Path("gathers") / self.file


def population() -> list[Mutant]:
    """All of them, room by room."""
    written = (path.read_text() for path in sorted(_WRITTEN.glob("*.toml")))
    return [
        Mutant(**{**each, "through": tuple(each["through"]), "breaks": Promise(each["breaks"])})
        for text in written
        for each in tomllib.loads(text)["mutant"]
    ]


def what_is_wrong_with(mutant: Mutant) -> str:
    """Why it cannot be made or asked, in one line; empty if it can."""
    path = SOURCES / mutant.path
    if not path.is_file():
        return f"{mutant.name}: there is no {mutant.file}"
    text = path.read_text()
    if (count := text.count(mutant.was)) != 1:
        return f"{mutant.name}: its text stands {count} times in {mutant.file}, not once"
    if strange := [name for name in mutant.through if name not in ADAPTERS]:
        return f"{mutant.name}: no adapter is called {strange[0]}"
    try:
        compile(text.replace(mutant.was, mutant.becomes), mutant.file, "exec")
    except SyntaxError as error:
        return f"{mutant.name}: it is no Python: {error}"
    return "" if mutant.through and mutant.was != mutant.becomes else f"{mutant.name}: it changes or asks nothing"
