"""How right a verdict on a program is, and what many of them come to.

Strictly right is a verdict that is one finding, of the right kind, that names exactly the guilty ranks and a guilty
line. Where ranks disagree and nobody can say who is right, a verdict that accuses one of them is wrong.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.catalogue.programs import Program

__all__ = ["Judged", "Tally", "Verdict", "lines_in", "places_in", "tally"]

_PLACE = re.compile(r'(?:File "(?P<file>[^"]+)", line (?P<line>\d+))|(?:(?P<shown>[^\s"(]+\.py):(?P<number>\d+))')


@dataclass(frozen=True, slots=True)
class Verdict:
    """What somebody who runs a program is told.

    `kind` is None where the tool does not tell kinds apart, and need not. `accuses` says whether `ranks` are called
    guilty, not only at odds. `lines` are those of the program that it shows for `ranks`.
    """

    noticed: bool
    seconds: float
    kind: str | None = ""
    ranks: frozenset[int] = frozenset()
    accuses: bool = False
    lines: frozenset[int] = frozenset()
    findings: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict on a program, held against the truth."""

    program: Program
    verdict: Verdict

    @property
    def right(self) -> bool:
        """A mistake is noticed, or a correct program passes."""
        return self.verdict.noticed == (self.program.truth is not None)

    @property
    def wrong_in(self) -> tuple[str, ...]:
        """In what the verdict on a mistake is not strictly right; nothing if it is."""
        truth, said = self.program.truth, self.verdict
        if truth is None or not said.noticed:
            return () if self.right else ("noticed",)
        told_apart = said.accuses == bool(truth.culprits) or len(truth.ranks) == self.program.ranks
        checks = {
            "kind": said.kind is None or said.kind in truth.kinds,
            "ranks": said.ranks == truth.ranks and told_apart,
            "line": bool(said.lines & truth.lines),
            "findings": said.findings == 1,
        }
        return tuple(name for name, holds in checks.items() if not holds)

    @property
    def strict(self) -> bool:
        return not self.wrong_in


@dataclass(frozen=True, slots=True)
class Tally:
    """What verdicts on `mistakes` and `correct` programs come to; a share is None where there is nothing to share."""

    mistakes: int
    correct: int
    recall: float | None
    specificity: float | None
    strict: float | None
    findings: float | None
    seconds: float | None


def tally(judged: Iterable[Judged]) -> Tally:
    """The figures over all of `judged`; findings and seconds are those of the mistakes that were noticed."""
    every = list(judged)
    mistakes = [each for each in every if each.program.truth is not None]
    correct = [each for each in every if each.program.truth is None]
    noticed = [each for each in mistakes if each.verdict.noticed]
    return Tally(
        mistakes=len(mistakes),
        correct=len(correct),
        recall=_mean([each.right for each in mistakes]),
        specificity=_mean([each.right for each in correct]),
        strict=_mean([each.strict for each in mistakes]),
        findings=_mean([each.verdict.findings for each in noticed]),
        seconds=statistics.median([each.verdict.seconds for each in noticed]) if noticed else None,
    )


def lines_in(text: str, program: str) -> frozenset[int]:
    """The lines of the file `program` that `text` shows, as a traceback or as ``file.py:41``."""
    return frozenset(line for file, line in places_in(text) if program.endswith(file))


def places_in(text: str) -> list[tuple[str, int]]:
    """Every file and line that `text` shows, as a traceback or as ``file.py:41``, in the order in which it does."""
    found = [(match["file"] or match["shown"], match["line"] or match["number"]) for match in _PLACE.finditer(text)]
    return [(file.removeprefix("./"), int(line)) for file, line in found]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
