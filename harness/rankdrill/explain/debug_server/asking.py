"""Whether somebody means torch's debug server, or what it has written; and what it tells then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankdrill.explain.debug_server.directory import is_debug_directory, read_debug_directory
from rankdrill.explain.debug_server.live import is_address, read_server
from rankdrill.explain.debug_server.served import Served

__all__ = ["read_served"]


def read_served(places: Sequence[str]) -> Served | None:
    """What the server at the one of `places` tells, or has written into it; None where it is something else.

    Raises `UsageError` where a server does not answer, or its files tell of no rank.
    """
    if len(places) != 1:
        return None
    (place,) = places
    if is_address(place):
        return read_server(place)
    return read_debug_directory(Path(place)) if is_debug_directory(Path(place)) else None
