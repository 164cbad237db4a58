"""What one can read off processes that failed, died or hung, and off what they wrote to standard error.

Read with good will: where errors say who is at odds with whom, whoever is named most often is accused; otherwise those
who failed by something else than the loss of another, and failing that those who are said not to have come.
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
    def speaks_of_others(self) -> bool:
        """Whether it failed by the loss of another, or says who is missing."""
        return bool(_VICTIM.search(self.last_line) or _ABSENT.search(self.last_line))

    @property
    def last_line(self) -> str:
        lines = [line for line in self.errors.splitlines() if line.strip()]
        return lines[-1] if lines else ""


def read(program: Program, ended: Sequence[Ended], seconds: float) -> Verdict:
    """The verdict of somebody who sees `ended`, and no more."""
    if not any(each.failed or each.hung for each in ended):
        return Verdict(noticed=False, seconds=seconds, kind=None)
    at_odds = [each.errors for each in ended if _AT_ODDS.search(each.errors)]
    own = {rank: each.last_line for rank, each in enumerate(ended) if each.failed and not each.speaks_of_others}
    ranks = _most_named(at_odds) or frozenset(own) or _most_named([each.errors for each in ended])
    lines = frozenset(line for rank in ranks for line in lines_in(ended[rank].errors, program.file))
    findings = 1 if at_odds else max(1, len({_without_numbers(line) for line in own.values()}))
    text = "\n".join(f"rank {rank}: {_told(each)}" for rank, each in enumerate(ended))
    return Verdict(True, seconds, None, ranks, len(ranks) < len(ended), lines, findings, text)


def _most_named(texts: Sequence[str]) -> frozenset[int]:
    named = Counter(rank for text in texts for rank in _named(text))
    return frozenset(rank for rank, times in named.items() if times == max(named.values()))


def _named(errors: str) -> set[int]:
    """The ranks that one process's errors name."""
    found = {int(rank) for pair in _AT_ODDS.findall(errors) for rank in pair}
    for several, one in _ABSENT.findall(errors):
        found |= {int(rank) for rank in (several or one).replace(",", " ").split()}
    return found


def _without_numbers(line: str) -> str:
    return re.sub(r"\d+", "#", line)


def _told(ended: Ended) -> str:
    if ended.hung:
        return "hung"
    if not ended.failed:
        return "ended"
    return f"exit code {ended.code}: {ended.last_line[:300]}"
