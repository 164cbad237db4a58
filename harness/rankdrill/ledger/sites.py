"""The table of call sites behind a ledger's ring: each line of code that made a collective once, by number.

Of a call that libraries made for the user their lines are kept too, each marked as such, as long as a quarter of the
room is left for the lines of the user's, which say more; and the callers of those as long as an eighth is left.
"""

from __future__ import annotations

import mmap
import struct
import threading
from dataclasses import replace

from rankdrill.ledger import format as f
from rankdrill.ledger.whole_names import whole_name
from rankdrill.ledger.whole_paths import whole_path
from rankdrill.step import Site
from rankdrill.whose import Whose, whose_file

__all__ = ["SiteTable", "Sites"]

# line, file, the caller's number with what it is marked by, function, public function, the entry's own number
_ENTRY = struct.Struct("<I164sI48s32sI")
_FILE = 164
_OF_A_LIBRARY = 1 << 31
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
        return (
            (self._number(site.whole, self._room * 3 // 4) if site.whole is not None else 0)
            or (self._number(site, self._room * 7 // 8) if site.caller is not None else 0)
            or self._number(replace(site, caller=None), self._room)
        )

    def _number(self, site: Site | None, room: int) -> int:
        """The number of `site` and all that led there; 0 where they would take more than that `room`."""
        if site is None:
            return 0
        known = self._numbers.get(site)
        if known is not None:
            return known
        caller = self._number(site.caller, room)
        return self._add(site, caller, room) if caller or site.caller is None else 0

    def _add(self, site: Site, caller: int, room: int) -> int:
        of_a_library = whose_file(site.file) is Whose.LIBRARY
        with self._adding:
            number = self._numbers.get(site, len(self._numbers) + 1)
            if number > room:
                return 0
            _ENTRY.pack_into(
                self._map,
                self._start + (number - 1) * f.SITE_BYTES,
                site.line & 0xFFFFFFFF,
                f.fit(site.file, _FILE, keep="tail"),
                caller | of_a_library * _OF_A_LIBRARY,
                f.fit(site.function, 48),
                f.fit(site.via, 32),
                number,
            )
            self._numbers[site] = number
            return number


class Sites:
    """The call sites that a ledger tells, by number: of the user's lines alone, and with those of libraries between."""

    def __init__(self) -> None:
        self.users: dict[int, Site] = {}
        self.whole: dict[int, Site] = {}

    def __len__(self) -> int:
        return len(self.users)

    def read(self, raw: bytes) -> bool:
        """Take in the entry that follows; whether it was written to its end."""
        if len(raw) != f.SITE_BYTES:
            return False
        number = len(self.users) + 1
        line, file, caller, function, via, mark = _ENTRY.unpack(raw)
        if mark != number:
            return False
        path, called = whole_path(f.text(file)), f.text(via)
        outer, of_a_library = caller & ~_OF_A_LIBRARY, caller & _OF_A_LIBRARY
        told = path, line, whole_name(path, line, f.text(function)), called
        self.whole[number] = Site(*told, self.whole.get(outer))
        users = self.users.get(outer)
        if of_a_library and users is not None:
            self.users[number] = replace(users, via=called) if called else users
        else:
            self.users[number] = Site(*told, users)
        return True
