"""Calls in a row that the user's program made by one: the exchanges of a forward pass, or all that a helper calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rankdrill.site import outward
from rankdrill.step import Site, Step

__all__ = ["Wholes"]

EXCHANGES = 2  # that a collective of Python objects is made of
MOST = 16  # calls in a row that are taken for one
DEEPEST = 4  # callers that are looked at
NEWEST = 64  # calls of which it is asked how many make one


class Wholes:
    """Which calls in a row of `steps` are one call of the user's, or of a line of the user's that calls a helper.

    A line tells only if its function comes to such calls by way of other lines, too: all of a program is called by one.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        sites = {step.site for step in steps if step.site is not None}
        lines: dict[tuple[str, str], set[int]] = {}
        for each in {each for site in sites for each in islice(outward(site), DEEPEST)}:
            lines.setdefault((each.file, each.function), set()).add(each.line)
        self._branching = {function for function, those in lines.items() if len(those) > 1}
        keys = {site: frozenset(self._keys_of(site)) for site in sites}
        self._keys = [keys[step.site] if step.site is not None else frozenset() for step in steps]
        self.widths = {EXCHANGES, *(length for length in self._runs() if 1 < length <= MOST)}

    def holds(self, place: int, width: int) -> bool:
        """Whether the `width` calls from `place` on are one."""
        return bool(frozenset.intersection(*self._keys[place : place + width]))

    def _keys_of(self, site: Site) -> Iterator[object]:
        """What a call from there is part of, from within."""
        # Sizes of objects go first, and buffers of each dtype; a model's layers are gathered one by one.
        if "_object" in site.via or "." in site.via or site.via.startswith("FSDP "):
            yield site
        for caller in islice(outward(site), 1, DEEPEST):
            if (caller.file, caller.function) in self._branching:
                yield caller

    def _runs(self) -> Iterator[int]:
        """How many of the newest calls in a row are part of the same."""
        running: dict[object, int] = {}
        for keys in (*self._keys[-NEWEST:], frozenset[object]()):
            yield from (length for key, length in running.items() if key not in keys)
            running = {key: running.get(key, 0) + 1 for key in keys}
