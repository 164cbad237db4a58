"""The table of call sites behind a ledger's ring: each line of code that made a collective once, by number."""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Mapping

from rankdrill.ledger import format as f
from rankdrill.ledger.whole_names import whole_name
from rankdrill.ledger.whole_paths import whole_path
from rankdrill.step import Site

__all__ = ["SiteTable", "read_site"]

# line, file, the caller's number, function, public function, mark
_ENTRY = struct.Struct("<I164sI48s32sI")
_FILE = 164
assert _ENTRY.size == f.SITE_BYTES


class SiteTable:
    """Gives call sites their numbers, from 1, and writes each down before its number is used; 0 once it is full."""

    def __init__(self, memory: mmap.mmap, start: int, room: int) -> None:
        self._map = memory
        self._start = start
        self._room = room
        self._numbers: dict[Site, int] = {}
        self._adding = threading.Lock()

    def number(self, site: Site | None) -> int:
        """The number of `site`; 0 for a call of unknown site."""
        if site is None:
            return 0
        known = self._numbers.get(site)
        return known if known is not None else self._add(site, self.number(site.caller))

    def _add(self, site: Site, caller: int) -> int:
        with self._adding:
            number = self._numbers.get(site, len(self._numbers) + 1)
            if number > self._room:
                return 0
            _ENTRY.pack_into(
                self._map,
                self._start + (number - 1) * f.SITE_BYTES,
                site.line & 0xFFFFFFFF,
                f.fit(site.file, _FILE, keep="tail"),
                caller,
                f.fit(site.function, 48),
                f.fit(site.via, 32),
                number,
            )
            self._numbers[site] = number
            return number


def read_site(raw: bytes, number: int, known: Mapping[int, Site]) -> Site | None:
    """The call site of this number, or None where its entry was not written to its end; `known` are those before it."""
    if len(raw) != f.SITE_BYTES:
        return None
    line, file, caller, function, via, mark = _ENTRY.unpack(raw)
    if mark != number:
        return None
    path = whole_path(f.text(file))
    return Site(path, line, whole_name(path, line, f.text(function)), f.text(via), known.get(caller))
