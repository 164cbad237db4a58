"""Where ranks of a body meet, for the default group or for rpc: all of them have to name one place.

To make the group is one step of every rank.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from urllib.parse import parse_qsl, urlparse

from torch.distributed.distributed_c10d import PrefixStore, Store

from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.crossing import Boundary
from rankdrill.errors import UsageError
from rankdrill.ledger import spell_members
from rankdrill.step import DEFAULT_GROUP, INIT_GROUP, Kind, Step

__all__ = ["Meetings"]

_CHOSEN = ("file", "tcp")
"""Places that the caller has chosen, each rank alike. `env://` is the world's own."""
PATIENCE = timedelta(seconds=10)
"""For the others to come to where ranks meet for something else than their group: then each goes to its own place."""

_OR_THE_GROUP_THERE = "or @pytest.mark.ranks({}) without init=False, whose group is there"


class Meetings:
    """The calls in which the ranks of a world meet to make the default group themselves.

    Whoever waits in one waits for all the others, and is told where they are instead. And the file or port that one
    launching process chose for all, each rank chooses for itself once it is the test that runs on ranks: torch would
    have each wait at its own, until the deadline. So it is where they meet for rpc.
    """

    def __init__(self, store: Store, rank: int, world_size: int, boundary: Boundary) -> None:
        self._store = store
        self._rank = rank
        self._ranks = range(world_size)
        self._boundary = boundary
        self._numbers = itertools.count()

    def meet(self, url: str | None, world_size: int, make: Callable[[], None]) -> None:
        """Have `make` make the group, once all have named one place; `url` and `world_size` are as asked for.

        Raises `UsageError` on all ranks if they name several.
        """
        __tracebackhide__ = True
        if not self._boundary.open or _size_asked(url, world_size) != len(self._ranks):
            make()  # another world than this one: its own affair
            return
        number = next(self._numbers)
        members = spell_members(self._ranks)[0]
        step = Step(Kind.GROUP, INIT_GROUP, DEFAULT_GROUP, members, sequence=number, site=call_site(2))

        def real(_call: object) -> None:
            __tracebackhide__ = True
            places = self._places(url, number)
            if places is not None and _differ(places):
                raise UsageError(f"init_process_group() {_apart(places)}, {_OR_THE_GROUP_THERE.format(len(places))}")
            make()

        self._boundary.cross(step, {}, real)

    def compare(self, url: str, world_size: int) -> None:
        """Raise `UsageError` if the ranks are to meet for something else, rpc say, at several places.

        All raise it that come within `PATIENCE` of each other. It is no step: nobody looks for who does not come.
        """
        __tracebackhide__ = True
        if not self._boundary.open or _size_asked(url, world_size) != len(self._ranks):
            return
        with self._boundary.closed():
            places = self._places(url, next(self._numbers), PATIENCE)
        if places is not None and _differ(places):
            raise UsageError(f"torch.distributed.rendezvous() {_apart(places)}, or the port in MASTER_PORT")

    def _places(self, url: str | None, number: int, patience: timedelta | None = None) -> list[str] | None:
        """Where each rank is to meet; None if that is no place, or not all of them said so in time."""
        parsed = urlparse(url or "")
        if parsed.scheme not in _CHOSEN:
            return None
        told = PrefixStore(f"meeting-place-{number}", self._store)
        told.set(str(self._rank), parsed._replace(query="").geturl())
        if patience is not None:
            try:
                told.wait([str(rank) for rank in self._ranks], patience)
            except RuntimeError:  # whoever is not there is told of by others
                return None
        return [told.get(str(rank)).decode() for rank in self._ranks]


def _size_asked(url: str | None, world_size: int) -> int:
    asked = dict(parse_qsl(urlparse(url or "").query)).get("world_size")
    if asked is None:
        asked = str(world_size) if world_size >= 0 else os.environ.get("WORLD_SIZE", "")
    return int(asked) if asked.isdecimal() else world_size


def _where(place: str) -> object:
    """What two ranks must have in common to meet: of this machine's names one is as good as another."""
    parsed = urlparse(place)
    return parsed.port if parsed.scheme == "tcp" else place


def _differ(places: Sequence[str]) -> bool:
    return len(set(map(_where, places))) > 1


def _apart(places: Sequence[str]) -> str:
    other = next(rank for rank, place in enumerate(places) if _where(place) != _where(places[0]))
    return (
        f"is to meet at {places[0]} on rank 0, at {places[other]} on rank {other}: each rank makes its own; "
        "take a path in tmp_path, which they share"
    )
