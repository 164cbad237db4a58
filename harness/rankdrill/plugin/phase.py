"""What the controller asks a rank's pytest session to do, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rankdrill.worlds.outcome import RenderedError

__all__ = ["Ended", "PhaseEnd", "RankTestError", "SessionSetup", "TestPlace"]


class Ended(StrEnum):
    """How a phase ended on a rank that did not fail."""

    PASSED = "passed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"  # by calling pytest.xfail()
    REJECTED = "rejected"  # by calling hypothesis.assume()


@dataclass(frozen=True)
class SessionSetup:
    """What a rank needs to make the same session as the controller: options and arguments."""

    options: dict[str, Any]
    args: tuple[str, ...]
    rootdir: str


@dataclass(frozen=True)
class TestPlace:
    """Which test, and where its ranks' shared `tmp_path` is."""

    __test__ = False  # pytest would take it for a test class

    nodeid: str
    path: str
    tmp_path: str


@dataclass(frozen=True)
class PhaseEnd:
    """A phase that did not fail. `warnings` are (text, category name, file, line); `sections` as in reports."""

    ended: Ended
    reason: str = ""
    sections: tuple[tuple[str, str, str], ...] = ()
    properties: tuple[tuple[str, Any], ...] = ()
    warnings: tuple[tuple[str, str, str, int], ...] = field(default=())


class RankTestError(RenderedError):
    """A phase failed on a rank, rendered by pytest there; `sections` as in reports."""

    def __init__(self, text: str, crash: str, error: bytes, sections: tuple[tuple[str, str, str], ...] = ()) -> None:
        self.sections = sections
        super().__init__(text, crash, error, sections)
