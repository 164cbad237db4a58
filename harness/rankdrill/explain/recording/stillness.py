"""How long processes have not moved: by what they wrote down, of which a look reads the newest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rankdrill.explain.recording.explaining import FEW
from rankdrill.explain.recording.reading import Recorded
from rankdrill.ledger import State
from rankdrill.ledger import format as f

__all__ = ["Mark", "Stillness"]

Mark = tuple[int, int]
"""How many steps a process had begun, and what its newest records were like."""
_STATES = frozenset(State)


@dataclass
class _Process:
    mark: Mark
    in_call: bool
    since: float


@dataclass
class Stillness:
    """Of the processes of one run. Times are seconds of the watchdog's own: those in which it looked."""

    longest: float = 0.0
    """That one did not move, and then did."""
    _known: dict[str, _Process] = field(default_factory=dict)

    def look(self, processes: Iterable[Recorded], now: float) -> None:
        """Take in what `processes`, those that live, have written down; others are forgotten."""
        there = {one.name: one for one in processes}
        for name in self._known.keys() - there.keys():
            del self._known[name]
        for name, one in there.items():
            mark, in_call = _newest(one)
            known = self._known.get(name)
            if known is None:
                self._known[name] = _Process(mark, in_call, now)
            elif known.mark != mark:
                self.longest = max(self.longest, now - known.since)
                self._known[name] = _Process(mark, in_call, now)

    def seconds(self, now: float) -> float:
        """For how long nobody has moved, or, if that is longer, somebody has not come out of what it is in."""
        still = [now - each.since for each in self._known.values()]
        in_calls = [now - each.since for each in self._known.values() if each.in_call]
        return max(min(still, default=0.0), max(in_calls, default=0.0))

    def marks(self, now: float, seconds: float) -> Mapping[str, Mark]:
        """Those that have not moved for so long."""
        return {name: each.mark for name, each in self._known.items() if now - each.since >= seconds}


def _newest(one: Recorded) -> tuple[Mark, bool]:
    """How far a process is, and whether it is in a call."""
    if one.reader is None:
        return (0, 0), False
    total = one.reader.total
    raw = one.reader.view(max(total - FEW, 0)).raw
    states = [each[f.STATE_OFFSET] for each in raw if len(each) > f.STATE_OFFSET]
    in_call = any(state in _STATES and State(state).open for state in states)
    return (total, hash(raw)), in_call
