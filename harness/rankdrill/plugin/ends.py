"""How a phase of a test ended on a rank: a report, as it travels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rankdrill.plugin.commands import When
from rankdrill.step import Site
from rankdrill.worlds.plain import Plain
from rankdrill.worlds.rank_outcome import RenderedError

__all__ = ["COUNTED", "Ended", "Ends", "PhaseEnd", "RankTestError", "passed"]

COUNTED = "rankdrill.counted"
"""In a serialized report of a subtest: whether pytest fails the whole test for it, on the rank that logged it."""


class Ended(StrEnum):
    """What pytest made of a phase on one rank."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"  # though marked as expected to fail
    REJECTED = "rejected"  # by calling hypothesis.assume()


@dataclass(frozen=True)
class PhaseEnd(Plain):
    """One phase on one rank. `text` is the failure as pytest shows it, `crash` its gist, `error` the pickled exception.

    `marked` says of an xfailed phase that a mark of the test expected it; otherwise it called `pytest.xfail()`.
    `strict` says of an xpassed one that this fails the test. `sections` are (title, text) as in reports, `more` the
    serialized reports that were logged meanwhile, of subtests say. `returned` describes what a body returned that
    should have returned nothing. `events` and `targets` are what it said to Hypothesis's functions. `site` is the line
    of the user's that raised. `drew` says that random numbers of the rank's own had been drawn when it failed, `met`
    that it found something in the directory it shares with the others which it was about to make.
    """

    when: When
    ended: Ended
    reason: str = ""
    text: str = ""
    crash: str = ""
    error: bytes = b""
    marked: bool = False
    strict: bool = False
    sections: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, Any], ...] = ()
    more: tuple[dict[str, Any], ...] = ()
    returned: str = ""
    events: tuple[tuple[str, Any], ...] = ()
    targets: tuple[tuple[str, float], ...] = ()
    seconds: float = 0.0
    figures: tuple[dict[str, Any], ...] = ()  # of pytest-benchmark
    site: Site | None = None
    drew: bool = False
    met: bool = False

    @property
    def raised(self) -> bool:
        """Whether an exception, or what counts as one, ended it before its end."""
        return self.ended is Ended.FAILED or bool(self.text)

    @property
    def uneventful(self) -> bool:
        """Whether it passed, and there is nothing to tell of it but how long it took."""
        told = self.text or self.sections or self.properties or self.more or self.returned or self.figures
        told = told or self.events or self.targets
        return self.ended is Ended.PASSED and not told

    def __reduce__(self) -> tuple[Any, ...]:
        return (passed, (self.when, self.seconds)) if self.uneventful else super().__reduce__()


def passed(when: When, seconds: float) -> PhaseEnd:
    """A phase that passed with nothing to tell, as nearly all of them do; all else is as the class has it.

    A frozen dataclass fills in its fields one by one, which for three phases of four ranks is seen in what a small
    test costs.
    """
    end = object.__new__(PhaseEnd)
    vars(end).update(when=when, ended=Ended.PASSED, seconds=seconds)
    return end


@dataclass(frozen=True)
class Ends(Plain):
    """The phases that a job ran, in order. `warnings` are (text, category, file, line) of the whole test."""

    phases: tuple[PhaseEnd, ...] = ()
    warnings: tuple[tuple[str, str, str, int], ...] = ()

    def of(self, when: When) -> PhaseEnd | None:
        """How phase `when` ended, or None where it did not take place."""
        return next((end for end in self.phases if end.when == when), None)

    def given(self) -> Ends:
        """Itself, to be returned; raises `RankTestError` if a phase was ended by an exception."""
        __tracebackhide__ = True
        first = next((end for end in self.phases if end.raised), None)
        if first is not None:
            raise RankTestError(first.text, first.crash, first.error, self)
        return self


class RankTestError(RenderedError):
    """A phase failed on a rank, rendered by pytest there. `ends` has all phases of the job."""

    def __init__(self, text: str, crash: str, error: bytes, ends: Ends) -> None:
        self.ends = ends
        super().__init__(text, crash, error, ends)
