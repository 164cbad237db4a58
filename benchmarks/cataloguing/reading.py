"""What one can read off processes that failed, died or hung, and off what they wrote to standard error.

Read with good will: where a text names ranks, whoever it names most often is the one it accuses, and otherwise those
who failed by something else than the loss of another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.catalogue.programs import Program
from tests.catalogue.scoring import Verdict, lines_in

__all__ = ["Ended", "read"]

# DETAIL's two ways to say who is at odds with whom.
_AT_ODDS = re.compile(r"Rank (\d+) is running .{0,2000}?but Rank (\d+) is running", re.DOTALL)
_ABSENT = re.compile(r"Rank(?:s)? ([\d, ]+) failed to pass monitoredBarrier|Rank (\d+) (?:timed out|did not)")
_VICTIM = re.compile(r"connection (?:was )?(?:closed|reset|refused)|broken pipe|timed out|socket closed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit `code`, minus the signal that killed it, None if it hung; and what it wrote."""

    code: int | None
    errors: str

    @property
    def failed(self) -> bool:
        return bool(self.code)

    @property
    def hung(self) -> bool:
        return self.code is None

    @property
    def suffered(self) -> bool:
        """Whether it failed by the loss of another."""
        return self.failed and bool(_VICTIM.search(self.last_line))

    @property
    def last_line(self) -> str:
        lines = [line for line in self.errors.splitlines() if line.strip()]
        return lines[-1] if lines else ""


def read(program: Program, ended: Sequence[Ended], seconds: float) -> Verdict:
    """The verdict of somebody who sees `ended`, and no more."""
    if not any(each.failed or each.hung for each in ended):
        return Verdict(noticed=False, seconds=seconds, kind=None)
    ranks, accuses = _accused(ended)
    lines = frozenset(line for rank in ranks for line in lines_in(ended[rank].errors, program))
    said = {_without_ranks(each.last_line) for each in ended if each.failed and not each.suffered}
    text = "\n".join(f"rank {rank}: {_told(each)}" for rank, each in enumerate(ended))
    return Verdict(True, seconds, None, ranks, accuses, lines, max(1, len(said)), text)


def _accused(ended: Sequence[Ended]) -> tuple[frozenset[int], bool]:
    named = Counter(rank for each in ended for rank in _named(each.errors))
    if named:
        most = max(named.values())
        accused = frozenset(rank for rank, times in named.items() if times == most)
        return accused, len(accused) < len(named)
    return frozenset(rank for rank, each in enumerate(ended) if each.failed and not each.suffered), True


def _named(errors: str) -> set[int]:
    """The ranks that one process's errors name."""
    found = {int(rank) for pair in _AT_ODDS.findall(errors) for rank in pair}
    for several, one in _ABSENT.findall(errors):
        found |= {int(rank) for rank in (several or one).replace(",", " ").split()}
    return found


def _without_ranks(line: str) -> str:
    return re.sub(r"\d+", "#", line)


def _told(ended: Ended) -> str:
    if ended.hung:
        return "hung"
    if not ended.failed:
        return "ended"
    return f"exit code {ended.code}: {ended.last_line[:300]}"
