"""From the frames of an entry to the line of the user's own code that made the call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rankdrill.step import Site

__all__ = ["HANDS_ON", "site_of"]

_MOST_DEEP = 64  # frames of one call that are looked at
_MOST_CALLERS = 4
_LONGEST = 4096  # letters of a path, as Linux has it
_TORCHS = re.compile(
    r"[/\\](?:site|dist)-packages[/\\](?:torch|functorch|torchgen)[/\\]"
    r"|[/\\]rankdrill[/\\](?:boundary|launch|plugin|recording|worlds)[/\\]"
    r"|[/\\]torch[/\\](?:distributed|nn|autograd|utils|cuda|amp|optim|_\w+|csrc|fx|func)[/\\]|torch/csrc|^<|^\?|\.(?:cpp|h|so)$"
)
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3[^/\\]*[/\\]")
HANDS_ON = frozenset({"wrapper", "inner", "decorate_context", "_fn"})


def site_of(frames: Sequence[Any]) -> Site | None:
    """The site of a call with these frames, innermost first; None where none is the user's."""
    places = [_place(frame) for frame in frames[:_MOST_DEEP]]
    own = [at for at, (file, _, _) in enumerate(places) if not _is_torchs(file)]
    users = [at for at in own if not _is_installed(places[at][0])] or own
    if not users:
        return None
    first = users[0]
    torchs = (name for file, _, name in reversed(places[: min(own)]) if name not in HANDS_ON)
    via = next((name for name in torchs if not name.startswith("_")), "")
    site: Site | None = None
    for at in reversed(users[1 : 1 + _MOST_CALLERS]):
        file, line, function = places[at]
        site = Site(file, line, function, caller=site)
    file, line, function = places[first]
    return Site(file, line, function, via, site)


@lru_cache(maxsize=4096)
def _is_torchs(file: str) -> bool:
    return bool(_TORCHS.search(file))


@lru_cache(maxsize=4096)
def _is_installed(file: str) -> bool:
    return bool(_INSTALLED.search(file))


def _place(frame: Any) -> tuple[str, int, str]:
    file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
    if type(file) is not str or type(name) is not str or type(line) is not int or len(file) > _LONGEST:
        raise TypeError("frame is none")
    return file, line, name
