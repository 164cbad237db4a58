"""A score played on a world of this machine: each rank makes its calls, and what comes of it is what came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rankdrill.diagnosis import Finding
from rankdrill.replay.score import Score
from rankdrill.replay.writing import pytest_file
from rankdrill.worlds import Outcome, World
from rankdrill.worlds.job import Job

__all__ = ["FILE", "Played", "in_words", "play", "verdict_of"]

FILE = "again.py"
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Played:
    """What came of a score: the file that was played, and its outcome."""

    source: str
    outcome: Outcome

    @property
    def verdict(self) -> str:
        """In the words that a score has for it."""
        return verdict_of(self.outcome)


def in_words(finding: Finding) -> str:
    """Its kind, and who is at fault."""
    who = ", ".join(map(str, finding.culprits)) if finding.culprits else "nobody in the majority"
    return f"{finding.kind}: {who}"


def verdict_of(outcome: Outcome) -> str:
    """What was found, without lines: these are others when it is played again."""
    if outcome.findings:
        return in_words(outcome.findings[0])
    who = ", ".join(map(str, outcome.culprits))
    return "all returned" if outcome.ok else f"{outcome.verdict}: {who}"


def play(score: Score, *, deadline: float = DEADLINE_S) -> Played:
    """Play `score` on a world of its size. Raises `UsageError` for a world that cannot be."""
    source = pytest_file(score)
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="rankdrill-replay-") as directory, World(score.world_size) as world:
        file = Path(directory, FILE)  # a diagnosis reads the lines that calls are made from
        file.write_text(source, encoding="utf-8")
        exec(compile(source, file, "exec"), found)  # written here, of calls and numbers alone
        body: Callable[..., None] = found["test_again"]
        return Played(source, world.run_job(Job(body, (), with_context=True), deadline=deadline))
