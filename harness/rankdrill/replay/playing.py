"""A score played on a world of this machine: each rank makes its calls, and what comes of it is what came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.replay.score import Score
from rankdrill.replay.writing import pytest_file
from rankdrill.worlds import Outcome, World
from rankdrill.worlds.job import Job

__all__ = ["ALL_RETURNED", "FILE", "NOBODY_KNOWN", "Played", "beyond", "in_words", "play", "same_finding", "verdict_of"]

FILE = "again.py"
DEADLINE_S = 60.0
ALL_RETURNED = "all returned"
NOBODY_KNOWN = "nobody known to be at fault"
"""Of evidence that shows no cause."""
_NOBODY = "nobody in the majority"
_BY_CHANCE: Mapping[str, str] = {
    FindingKind.RACE: "who comes first is chance, and what a rank does with what it received is not known",
    FindingKind.LOST_UPDATE: "what a rank does with a value that it got is not known, and who comes first is chance",
    FindingKind.INPUT_HAZARD: "what touched the memory of a call is not known but for that it did",
}
"""Of which kinds nobody can say that the same has to come again."""
_CROSSED = frozenset({FindingKind.DEADLOCK, FindingKind.GROUP, FindingKind.CALL_ORDERING})
"""What ranks take in another order is the one for whoever sees who waits, another for whoever sees the calls."""


@dataclass(frozen=True)
class Played:
    """What came of a score: the file that was played, and its outcome."""

    source: str
    outcome: Outcome

    @property
    def verdict(self) -> str:
        """In the words that a score has for it."""
        return verdict_of(self.outcome)

    def as_told(self, score: Score) -> bool:
        """Whether it is what `score` says of it."""
        told = (score.verdict, *score.besides)
        return any(same_finding(each, self.verdict, of_dumps=bool(score.assumed)) for each in told)


def in_words(finding: Finding) -> str:
    """Its kind, and who is at fault."""
    who = ", ".join(map(str, finding.culprits)) if finding.culprits else _NOBODY
    return f"{finding.kind}: {who}"


def verdict_of(outcome: Outcome) -> str:
    """What was found, without lines: these are others when it is played again."""
    if outcome.findings:
        return in_words(outcome.findings[0])
    who = ", ".join(map(str, outcome.culprits))
    return ALL_RETURNED if outcome.ok else f"{outcome.verdict}: {who}"


def same_finding(there: str, here: str, *, of_dumps: bool = False) -> bool:
    """Whether what was found `here` is what was found `there`: of one kind, by the same culprits.

    Of dumps less is known there: that ranks wait in a circle may be seen here to come from another group or call.
    """
    (kind, _, who), (kind_here, _, who_here) = there.partition(": "), here.partition(": ")
    if of_dumps and kind == FindingKind.UNMATCHED and who == _NOBODY:
        return kind_here == kind  # dumps do not tell who left his end out; who plays it sees that
    if there == NOBODY_KNOWN:
        return here == ALL_RETURNED
    alike = kind == kind_here or (of_dumps and kind == FindingKind.DEADLOCK and kind_here in _CROSSED)
    return alike and sorted(who.split(", ")) == sorted(who_here.split(", "))


def beyond(score: Score) -> str:
    """Why it cannot be asked of a score that the same comes of it; empty where it can."""
    if any(part.end.how == "elsewhere" and "lock" in part.end.text for part in score.parts):
        return "locks and threads are no calls, and are not played"
    if score.kind == NOBODY_KNOWN:
        return "what was left shows no cause, so nothing has to come again"
    return _BY_CHANCE.get(score.kind, "")


def play(score: Score, *, deadline: float = DEADLINE_S, file: Path | None = None) -> Played:
    """Play `score` on a world of its size, from `file` if it has been written there, whose lines are told then.

    Raises `UsageError` for a world that cannot be.
    """
    source = pytest_file(score)
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="rankdrill-replay-") as directory, World(score.world_size) as world:
        if file is None:
            file = Path(directory, FILE)  # a diagnosis reads the lines that calls are made from
            file.write_text(source, encoding="utf-8")
        found["__file__"] = str(file)
        exec(compile(source, file, "exec"), found)  # written here, of calls and numbers alone
        body: Callable[..., None] = found["test_again"]
        return Played(source, world.run_job(Job(body, (), with_context=True), deadline=deadline))
