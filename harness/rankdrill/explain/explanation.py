"""What is left of a job, explained: one root cause first, and what was there to judge by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankdrill.diagnosis import Confidence, Finding, name_ranks

__all__ = ["Cause", "Explanation", "Place", "places_of"]


_OF_SEVERAL = {"was": "were", "is": "are", "waits": "wait"}
"""How a verb is said of several ranks; the page's script knows these too."""


@dataclass(frozen=True)
class Cause:
    """A finding, how sure it is, and `why`: what in the evidence says so, in one sentence each."""

    finding: Finding
    confidence: Confidence
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where the evidence of `ranks` ends: what all of them were doing, in words that follow ``rank 2``."""

    ranks: tuple[int, ...]
    doing: str

    def __str__(self) -> str:
        verb, space, rest = self.doing.partition(" ")
        verb = _OF_SEVERAL.get(verb, verb) if len(self.ranks) > 1 else verb
        return f"{name_ranks(self.ranks)} {verb}{space}{rest}"


@dataclass(frozen=True)
class Explanation:
    """What came of reading `source`.

    `causes` holds the root cause first; further ones are faults of their own, which the first may have masked. Without
    any, nothing shows that ranks came apart. `fits` is what else the evidence allows, a sentence each. `victims` did
    nothing wrong and wait. `gaps` is what was not there to read, or not to be believed: a rank without a dump, a ring
    that wrapped, a torn file. `runs` are those that lie there, if they are several: first the one that is explained.
    """

    source: str
    world_size: int
    causes: tuple[Cause, ...] = ()
    fits: tuple[str, ...] = ()
    victims: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    gaps: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()

    @property
    def culprits(self) -> tuple[int, ...]:
        return tuple(sorted({rank for cause in self.causes for rank in cause.finding.culprits}))


def places_of(doing: Sequence[tuple[int, str]]) -> tuple[Place, ...]:
    """A place for each way to be, of the ranks and what each was doing; ranks of one are together."""
    alike: dict[str, list[int]] = {}
    for rank, what in doing:
        alike.setdefault(what, []).append(rank)
    return tuple(Place(tuple(sorted(ranks)), what) for what, ranks in alike.items())
