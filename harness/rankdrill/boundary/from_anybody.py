"""What a rank has received from anybody, line by line: from whom it came, and whether it was the same from all.

Which message came first matters only where they differ. So a digest of what came is kept, of each sender the first few.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.modes_seam import plainly
from rankdrill.boundary.orders.script import Difference
from rankdrill.step import Site, Step

__all__ = ["FromAnybody", "TakenThere"]

MOST_LINES = 64  # that are remembered, with their callers
MOST_SENDERS = 64  # of one line
MOST_CONTENTS = 16  # of one sender, the first
MOST_BYTES = 1 << 16  # of one message: those that differ only further on count as the same
Line: TypeAlias = tuple[Site | None, str, int]


class TakenThere(NamedTuple):
    """At `site` messages with `tag` on `group` were received from anybody: what diagnosis knows as `Taken`."""

    site: Site
    group: str
    tag: int
    senders: tuple[int, ...]
    differ: bool
    elements: int
    otherwise: tuple[Difference, ...]
    by_lines: bool
    vary: bool


@dataclass
class _Taken:
    contents: dict[int, set[bytes]] = field(default_factory=dict)
    elements: int = 1 << 62

    def add(self, source: int, content: bytes, elements: int) -> None:
        self.elements = min(self.elements, elements)
        if source in self.contents or len(self.contents) < MOST_SENDERS:
            known = self.contents.setdefault(source, set())
            if len(known) < MOST_CONTENTS:
                known.add(content)

    def join(self, other: _Taken) -> None:
        """Take what `other` has for one's own."""
        self.elements = min(self.elements, other.elements)
        for source, contents in other.contents.items():
            self.contents.setdefault(source, set()).update(contents)

    @property
    def differ(self) -> bool:
        """Whether one has sent what another has not, and the other way round."""
        each = list(self.contents.values())
        return any(one - other and other - one for at, one in enumerate(each) for other in each[:at])

    @property
    def vary(self) -> bool:
        """Whether one has sent different things, one after the other."""
        return any(len(contents) > 1 for contents in self.contents.values())


class FromAnybody:
    """What one rank has received so, on the first `lines`, since somebody last asked; from any threads."""

    def __init__(self, lines: int = MOST_LINES) -> None:
        self._lines = lines
        self._taken: dict[tuple[Site, str, int], _Taken] = {}
        self._lock = threading.Lock()

    def add(self, step: Step, source: int, given: Any) -> None:
        """The receive `step` has taken what lies in the tensors `given` now from the global rank `source`."""
        if not self._lines:
            return
        tensors = list(flatten(given))
        content = _digest(tensors)
        if step.site is None or step.message is None or content is None:
            return
        key = step.site, step.target, step.message.tag
        with self._lock:
            if key in self._taken or len(self._taken) < self._lines:
                elements = sum(tensor.numel() for tensor in tensors)
                self._taken.setdefault(key, _Taken()).add(source, content, elements)

    def take(
        self, differences: Mapping[tuple[Site | None, str, int], tuple[Difference, ...]] | None = None
    ) -> list[TakenThere]:
        """Who has answered at each line; all of it is forgotten then. `differences` by line, group and tag.

        Where there is a difference those count, too, whose messages other lines took: each its own, in another order.
        Several lines of one function are told once more, all together, by the first of them.
        """
        with self._lock:
            taken, self._taken = self._taken, {}
        senders: dict[tuple[str, int], set[int]] = {}
        for (_, group, tag), each in taken.items():
            senders.setdefault((group, tag), set()).update(each.contents)
        told: list[TakenThere] = []
        differences = differences or {}
        # Those first where the order matters, and of them as they are told.
        for key in sorted(taken, key=lambda key: [*differences, key].index(key)):
            each, different = taken[key], differences.get(key, ())
            those = senders[key[1:]] if different else set(each.contents)
            told.append(_there(key, those, each, different))
        return told + _together(taken)


def _together(taken: Mapping[tuple[Site, str, int], _Taken]) -> list[TakenThere]:
    """The same of functions in each of which several lines have received, where more than one has answered."""
    functions: dict[tuple[str, str, str, int], list[tuple[Site, _Taken]]] = {}
    for (site, group, tag), each in taken.items():
        functions.setdefault((site.file, site.function, group, tag), []).append((site, each))
    told: list[TakenThere] = []
    for (_, _, group, tag), lines in functions.items():
        whole = _Taken()
        for _, each in lines:
            whole.join(each)
        if len({site.line for site, _ in lines}) > 1 and len(whole.contents) > 1:
            first = min((site for site, _ in lines), key=lambda site: site.line)
            told.append(_there((first, group, tag), whole.contents, whole, (), by_lines=True))
    return told


def _there(
    key: tuple[Site, str, int],
    senders: Iterable[int],
    taken: _Taken,
    different: tuple[Difference, ...],
    *,
    by_lines: bool = False,
) -> TakenThere:
    return TakenThere(*key, tuple(sorted(senders)), taken.differ, taken.elements, different, by_lines, taken.vary)


def _digest(tensors: Sequence[Any]) -> bytes | None:
    """That of all `tensors`; None where their memory cannot be read from here."""
    found = blake2b(digest_size=8)
    try:
        with plainly():
            for tensor in tensors:
                if tensor.device.type != "cpu" or not tensor.is_contiguous():
                    return None
                nbytes = min(tensor.numel() * tensor.element_size(), MOST_BYTES)
                found.update(ctypes.string_at(tensor.data_ptr(), nbytes) if nbytes else b"")
    except RuntimeError:  # one that has no memory of its own
        return None
    return found.digest()
