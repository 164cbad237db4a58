"""What diagnosis finds, as data, and told in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rankdrill.diagnosis.waits import name_ranks
from rankdrill.step import NO_SEQUENCE, Site

__all__ = ["JOIN", "NAME", "Finding", "FindingKind", "Side", "side_of"]

MOST_SITES = 3  # told of one side


class FindingKind(StrEnum):
    """In MPI's words, where it has some."""

    CALL_ORDERING = "call ordering"  # different collectives met
    OPERATOR = "operator mismatch"
    ROOT = "root mismatch"
    DATATYPE = "datatype mismatch"
    SIZE = "size mismatch"
    DEVICE = "device mismatch"  # tensors lie on different devices, for each of which the group has another backend
    GROUP = "group mismatch"
    MISSING = "missing call"
    EXTRA = "extra call"
    REQUEST_LEAK = "request leak"  # asynchronous work that nobody waited for
    INPUT_HAZARD = "input hazard"  # its memory was accessed before somebody had
    LAYOUT = "memory layout"  # a view with gaps, which the backend takes for contiguous
    LEAKED_GROUP = "leaked group"  # made again and again, and never destroyed
    UNMATCHED = "unmatched message"  # a send without its receive, or a receive without its send
    RACE = "message race"  # a receive from anybody, and what follows depends on who came first
    MISSING_KEY = "missing key"  # a rank waits for a key of a store that nobody sets
    LOST_UPDATE = "lost update"  # ranks get a key and set it, each without what the other has set meanwhile
    LOST_RANK = "lost rank"  # it raised, was killed or left, and others wait for it
    STUCK_RANK = "stuck rank"  # it lives, and does not come to what others wait in
    DEADLOCK = "deadlock"  # each waits for the next, and each is right by itself


_NOT_VOTED = frozenset({FindingKind.UNMATCHED, FindingKind.MISSING_KEY, FindingKind.LOST_UPDATE})
"""Kinds of which no majority decides who is at fault."""


_LEFT_OUT = frozenset({FindingKind.MISSING, FindingKind.UNMATCHED})
"""Kinds of which the first place may be one where the culprits have not come."""


NAME = "name"
"""The argument of a finding on groups that are called what they should not be: no majority decides that either."""

JOIN = "Join"
"""That of one on calls which `Join` does not make for ranks that have joined: all ranks have them in their program."""


@dataclass(frozen=True)
class Side:
    """Ranks that did the same: what, in words that follow ``rank 2``, and from where, by rank.

    `ahead` is where by the source they come only then to what the other side has begun with, where that is known.
    `within` are the lines of libraries, by rank, by which those of the user's at `sites` did it, where nothing else
    tells the sides apart.
    """

    ranks: tuple[int, ...]
    did: str
    sites: tuple[Site | None, ...]
    ahead: Site | None = None
    within: tuple[Site | None, ...] = ()

    def __str__(self) -> str:
        return f"{name_ranks(self.ranks)} {self.itself}"

    @property
    def itself(self) -> str:
        """What they did, and where."""
        ahead = f", and would come to the other's only at {self.ahead.path}:{self.ahead.line}" if self.ahead else ""
        return f"{self.did}{self._where()}{ahead}"

    @property
    def leaves_out(self) -> bool:
        """Whether it tells what they did not do; its sites are where they should have."""
        return self.did.startswith(("leaves out ", "leave out "))

    @property
    def goes_past(self) -> bool:
        """Whether it tells by what they went past what they left out."""
        return " past it by " in self.did

    @property
    def returned(self) -> bool:
        """Whether it tells that they came to their end; its sites are where they were last."""
        return self.did.startswith("returned")

    def _where(self) -> str:
        by_site: dict[str, list[int]] = {}
        within = self.within or (None,) * len(self.sites)
        for rank, site, library in zip(self.ranks, self.sites, within, strict=True):
            if site is not None:
                by_way = f", by way of {library.path}:{library.line} in {library.function}" if library else ""
                by_site.setdefault(f"{site}{by_way}", []).append(rank)
        if len(by_site) == 1 and None not in self.sites:
            return f", at {next(iter(by_site))}"
        told = [f"at {site} ({name_ranks(ranks)})" for site, ranks in list(by_site.items())[:MOST_SITES]]
        return "".join(f", {one}" for one in told) + (", …" if len(by_site) > MOST_SITES else "")


@dataclass(frozen=True)
class Finding:
    """One root cause.

    `sides` says what ranks did that cannot go together, each with its call sites, the culprits' first. `culprits` is
    empty where nobody is in the majority: the ranks disagree, and nobody can say who is right. `step` names the call,
    such as ``all_reduce #3 on 'default'``; for different collectives the one that most are in, for a deadlock who waits
    for whom. `argument` is what differs. `group` and `number` say the same call as data: which of the group's
    collectives it is, from 0.
    """

    kind: FindingKind
    step: str
    argument: str
    sides: tuple[Side, ...]
    culprits: tuple[int, ...] = ()
    group: str = ""
    number: int = NO_SEQUENCE

    @property
    def ranks(self) -> tuple[int, ...]:
        """The culprits, or all who disagree."""
        return self.culprits or tuple(sorted({rank for side in self.sides for rank in side.ranks}))

    @property
    def lines(self) -> tuple[str, ...]:
        """The culprit's side first, then the others, each in one line; a call left out with what was made instead."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.kind is FindingKind.DEADLOCK and not self.culprits:
            yield f"{self.kind}: {self.step}"
            yield from map(str, self.sides)
            return
        voted = (
            self.kind not in _NOT_VOTED
            and self.argument not in (NAME, JOIN)
            and not self.culprits
            and len(self.sides) > 1
        )
        named = f"{self.kind}, nobody in the majority" if voted else str(self.kind)
        first, *others = self.sides
        told = f"{named}: {first}"
        if self.kind in _LEFT_OUT and (self.culprits or (others and others[0].goes_past)):
            same: list[str] = []  # how they went past, and where they are: the first is where they have not come
            while others and others[0].ranks == first.ranks and len(same) < 2:
                same.append(others.pop(0).itself)
            told = ", and ".join([", ".join([told, *same[:-1]]), *same[-1:]])
        yield told
        # Lines that differ only in callers too far out to be known read alike.
        yield from (line for line in dict.fromkeys(map(str, others)) if line != str(first))

    def __str__(self) -> str:
        return "; ".join(self.lines)


def side_of(ranks: Sequence[int], did: str, sites: Sequence[Site | None]) -> Side:
    """A side, its ranks in order."""
    ordered = sorted(zip(ranks, sites, strict=True), key=lambda pair: pair[0])
    return Side(tuple(rank for rank, _ in ordered), did, tuple(site for _, site in ordered))
