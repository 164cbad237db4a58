"""A case: one gather, one world size, one payload, at most one fault."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["NO_FAULT", "Case", "CaseResult", "Judgement", "RankTale"]

NO_FAULT = "none"


class Judgement(StrEnum):
    """How a gather came through a case. The first two are passes; the rest are listed from bad to worst."""

    RIGHT = "right"
    TOGETHER = "together"
    UNFIRED = "not fired"
    UNNAMED = "unnamed"
    LEAKED = "leaked"
    SPENT = "next call fails"
    ASYMMETRIC = "asymmetric"
    DIED = "died"
    HANG = "hang"
    WRONG = "silently wrong"
    BROKEN = "drill broke"

    @property
    def passed(self) -> bool:
        return self in (Judgement.RIGHT, Judgement.TOGETHER)

    @property
    def severity(self) -> int:
        """Larger is worse."""
        return list(Judgement).index(self)


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the drill. `fault` is a line of the plan language, or empty; `strike` its strike's bare name.

    `rank` is the rank that is struck, and -1 without a fault.
    """

    path: str
    size: int
    payload: str
    strike: str = NO_FAULT
    fault: str = ""
    rank: int = -1

    @property
    def name(self) -> str:
        """What happens in this case, in one line, without the path."""
        return f"{self.fault or 'nothing broken'} · {self.size} ranks · {self.payload}"

    @property
    def repeat(self) -> str:
        """The command that runs exactly this case."""
        words = ["rankdrill", "drill", "--path", self.path, "--ranks", str(self.size)]
        words += ["--fault", self.fault or NO_FAULT, "--payload", self.payload]
        return shlex.join(words)


@dataclass(frozen=True, slots=True)
class RankTale:
    """What one rank sent and received, in a line each, and the steps that it took, oldest first."""

    sent: str
    came: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class CaseResult:
    """What a case came to. `why` is the judgement in one line; `ranks` what each rank saw, one line each.

    `evidence` is what is worth reading beyond that: stacks of stuck ranks, files left. Times are in seconds; `waited`
    is how long the slowest rank was in the gather. `tales` is by rank, and empty unless the drill was to tell them.
    """

    case: Case
    judgement: Judgement
    why: str
    ranks: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    elapsed: float = 0.0
    waited: float = 0.0
    tales: tuple[RankTale, ...] = ()

    @property
    def passed(self) -> bool:
        return self.judgement.passed
