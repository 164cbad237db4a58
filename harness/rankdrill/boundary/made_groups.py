"""Groups that the user made again and again, each in the place of the one before, and never destroyed.

Many right programs keep a group to their end, one for each dimension, or a list of them. So a group counts only if
the same line made another of the same members after it, if the rank was at something else in between, and if it never
used the first again from then on: nobody misses that one, and nobody frees what it holds. Those of a mesh do not,
since a mesh has no way to be destroyed, and tests make one for each case that they try. Strictly, every one counts.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from rankdrill.boundary.callsites import MOST_FRAMES, call_site, owner_of
from rankdrill.boundary.numbering import numbering
from rankdrill.step import Site
from rankdrill.whose import Whose

__all__ = ["FEWEST_ALONE", "FEWEST_LEFT", "Made", "MadeGroups", "Usable", "made_by_user"]

FEWEST_LEFT = 4
"""Left behind from one line, be it now of these members and now of those. A test may try a few groups in turn and leave
it to its end to take them down.
"""
FEWEST_ALONE = 2
"""Left behind by one rank, while the other members have destroyed theirs."""
# Groups that others of torch's functions make are theirs: of FSDP, say, which is given no mesh.
_MESH = "init_device_mesh"
_MAKERS = frozenset({"new_group", "new_subgroups", "new_subgroups_by_enumeration", _MESH})


@dataclass(frozen=True, slots=True)
class Made:
    """One group, the `number`-th of this rank, made after it had issued `at` calls, in one part of a test."""

    number: int
    at: int
    part: int
    site: Site
    members: tuple[int, ...]

    @property
    def line(self) -> tuple[object, ...]:
        """What those have in common of which one takes the place of another."""
        return self.part, self.site.place, self.members

    @property
    def place(self) -> object:
        """The line that made it, of whatever members."""
        return self.part, self.site.place


class Usable(Protocol):
    """A group as this asks of it: None where it was not made by the user, and when it was used last."""

    made: Made | None
    last_used: int


class MadeGroups:
    """Those of one rank, and how far it had come when it made them, counted in calls of any group."""

    def __init__(self) -> None:
        self.moments = numbering()
        self._part = 0
        self._made: dict[tuple[object, ...], list[int]] = {}
        self._due: Container[int] | None = None
        self.upcoming = 0
        """The number of the next one."""
        self.strict = False
        """Whether each that is left counts, be it the only one."""

    def use(self) -> int:
        """A group is used: the moment."""
        return self.moments.take() + 1

    def make(self, site: Site, members: tuple[int, ...]) -> Made:
        """The user has made a group of `members`."""
        made = Made(self.upcoming, self.moments.upcoming, self._part, site, members)
        self.upcoming += 1
        self._made.setdefault(made.line, []).append(made.at)
        return made

    def begin_part(self) -> None:
        """What comes now takes the place of nothing before: another run, phase of a test, or example of it."""
        self._part += 1

    def expect(self, numbers: Container[int] | None = None) -> None:
        """Those with these `numbers`, or all so far, had to be destroyed by now."""
        self._due = range(self.upcoming) if numbers is None else numbers

    def take_left(self, groups: Iterable[Usable]) -> list[tuple[Site, tuple[int, ...], int, bool, bool, int]]:
        """Lines that made groups again, of which members, how many of those are still among `groups`, whether that is
        too many where the other members have left none, whether it is where they have, and how many have another in
        their place.

        Nothing unless they had to be destroyed by now. Each is told once.
        """
        if self._due is None:
            return []
        left: dict[tuple[object, ...], list[Made]] = {}
        behind: Counter[tuple[object, ...]] = Counter()
        for group in groups:
            made = group.made
            if made is not None and made.number in self._due and (self.strict or made.site.via != _MESH):
                left.setdefault(made.line, []).append(made)
                behind[made.line] += self._replaced(made, group.last_used)
        again = {line: of[0].place for line, of in left.items() if self.strict or behind[line] >= FEWEST_ALONE}
        places: Counter[object] = Counter()
        for line, place in again.items():
            places[place] += behind[line]
        found = [
            (
                of[0].site,
                of[0].members,
                len(of),
                line in again,
                line in again and (self.strict or places[of[0].place] >= FEWEST_LEFT),
                behind[line],
            )
            for line, of in left.items()
            if behind[line] or self.strict
        ]
        self._due = None
        self._made.clear()
        return found

    def _replaced(self, made: Made, last_used: int) -> bool:
        moments = self._made.get(made.line, [])
        place = bisect_right(moments, made.at)
        return place < len(moments) and last_used <= moments[place]


def made_by_user(depth: int = 1) -> Site | None:
    """The user's line that asked torch for the group being made; None where a library did, or rankdrill."""
    frame: FrameType | None = sys._getframe(depth)
    asked = False
    for _ in range(MOST_FRAMES):
        if frame is None:
            return None
        owner = owner_of(frame.f_code)
        if owner is Whose.USER:
            break
        if owner is Whose.LIBRARY or (asked and owner is Whose.OURS):
            return None
        asked = asked or owner is Whose.TORCH
        frame = frame.f_back
    site = call_site(depth + 1)
    return site if site is not None and site.via in _MAKERS else None
