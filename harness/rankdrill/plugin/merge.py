"""Merging: what N ranks did in one phase becomes one result, the culprit first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from _pytest._code.code import ReprFileLocation, TerminalRepr
from _pytest._io import TerminalWriter

from rankdrill.errors import FaultNotFired, RankDied, RanksDisagree, RankStuck, WorldError
from rankdrill.plugin.phase import Ended, PhaseEnd, RankTestError
from rankdrill.worlds import Outcome, RankOutcome, Status, name_ranks

__all__ = ["MergedFailure", "Report", "merge"]

VICTIM_WIDTH = 120


_PLACE = re.compile(r"^\S+:\d+: ")  # how pytest ends a traceback entry: file:line: what


_SOURCE = re.compile(r"\[/\S+:\d+\] ")  # gloo's messages begin with a path on the machine that built torch


@dataclass(frozen=True)
class Block:
    """What one or several ranks have to show, alike: a heading and the text below it."""

    heading: str
    text: str = ""


class MergedFailure(TerminalRepr):
    """The failure section of a test on ranks: the headline, culprits in full, victims in one line each."""

    def __init__(self, headline: str, blocks: Sequence[Block], victims: Sequence[str], where: tuple[str, int]) -> None:
        self.headline = headline
        self.blocks = blocks
        self.victims = victims
        self.sections: list[tuple[str, str]] = []
        # pytest's short summary line and JUnit's message attribute are taken from here.
        self.reprcrash = ReprFileLocation(where[0], where[1], headline)

    def toterminal(self, tw: TerminalWriter) -> None:
        """Write it as pytest writes failures: error lines red, the failing line bold."""
        tw.line(self.headline, red=True, bold=True)
        for block in self.blocks:
            tw.line("")
            if block.heading != self.headline:
                tw.line(block.heading, bold=True)
            for line in block.text.splitlines():
                tw.line(line, red=line.startswith("E "), bold=line.startswith((">", "E ")))
        if self.victims:
            tw.line("")
            tw.line("victims:", bold=True)
            for line in self.victims:
                tw.line(f"  {line}")
        for name, text in self.sections:
            tw.line("")
            tw.line(f"{name}:", bold=True)
            for line in text.splitlines():
                tw.line(f"  {line}")


@dataclass(frozen=True)
class Report:
    """One phase of one test on all ranks: how it ended together, and each rank's end where it has one."""

    ended: Ended | None
    reason: str = ""
    error: BaseException | None = None
    failure: MergedFailure | None = None


def merge(outcome: Outcome, where: tuple[str, int], nodeid: str) -> Report:
    """One result for the phase. `where` is the test's file and line."""
    ends = {rank.rank: end for rank in outcome.ranks if isinstance(end := rank.value, PhaseEnd)}
    kinds = {end.ended for end in ends.values()}
    alive = [rank.rank for rank in outcome.ranks if not rank.by_plan]
    if all(rank in ends for rank in alive) and not outcome.unfired:
        if len(kinds) <= 1:
            first = min(ends, default=None)
            return Report(kinds.pop() if kinds else Ended.PASSED, ends[first].reason if first is not None else "")
        return _disagreement(ends, where)
    return _failure(outcome, ends, where, nodeid)


def _disagreement(ends: dict[int, PhaseEnd], where: tuple[str, int]) -> Report:
    headline = "ranks disagree: " + _who_did_what(ends)
    return Report(None, error=RanksDisagree(headline), failure=MergedFailure(headline, (), (), where))


def _who_did_what(ends: dict[int, PhaseEnd]) -> str:
    groups: dict[str, list[int]] = {}
    for rank, end in sorted(ends.items()):
        groups.setdefault(f"{end.ended}{f' ({end.reason})' if end.reason else ''}", []).append(rank)
    # The minority first: it is the likelier culprit.
    ordered = sorted(groups.items(), key=lambda group: len(group[1]))
    return "; ".join(f"{name_ranks(ranks)} {what}" for what, ranks in ordered)


def _failure(outcome: Outcome, ends: dict[int, PhaseEnd], where: tuple[str, int], nodeid: str) -> Report:
    culprits = [rank for rank in outcome.culprits if not outcome.ranks[rank].by_plan]
    # A rank at fault by plan explains its victims; then they are all there is to show.
    shown = culprits or list(outcome.victims)
    blocks = list(_blocks(outcome, shown, ends))
    headline = blocks[0].heading if blocks else next(iter(outcome.unfired), "failed")
    blocks.extend(Block(line) for line in outcome.unfired if line != headline)
    victims = [_victim(outcome.ranks[rank]) for rank in outcome.victims if rank not in shown]
    if blocks and not blocks[0].text:
        blocks = blocks[1:]
    failure = MergedFailure(headline, blocks, victims, where)
    failure.sections.append(("to run it again", f"python -m pytest '{nodeid}'"))
    return Report(None, error=_error(outcome, shown, headline), failure=failure)


def _victim(rank: RankOutcome) -> str:
    """One line, cut where a transport's message begins to chat."""
    line = _SOURCE.sub("", str(rank).splitlines()[0])
    where = next((record.step for record in reversed(rank.ledger.records) if record.error), None)
    cut = line if len(line) <= VICTIM_WIDTH else line[: VICTIM_WIDTH - 1] + "…"
    return f"{cut} [in {where}]" if where else cut


def _blocks(outcome: Outcome, ranks: Iterable[int], ends: dict[int, PhaseEnd]) -> Iterable[Block]:
    """One block for each way to fail; ranks whose tracebacks run through the same lines share one."""
    alike: dict[tuple[str, ...], list[tuple[int, str, str]]] = {}
    for rank in ranks:
        what, text = _told(outcome, outcome.ranks[rank], ends)
        # Values differ between ranks (addresses, the rank's own number); what failed where does not.
        places = tuple(line for line in text.splitlines() if _PLACE.match(line))
        alike.setdefault(places or (what,), []).append((rank, what, text))
    for members in alike.values():
        _, what, text = members[0]
        others = [f"rank {rank} {other}" for rank, other, _ in members if other != what]
        listed = name_ranks(sorted(rank for rank, _, _ in members))
        yield Block(f"{listed} {what}", "\n".join([text, *others]) if others else text)


def _told(outcome: Outcome, rank: RankOutcome, ends: dict[int, PhaseEnd]) -> tuple[str, str]:
    """What a rank did, without its number so that equal ones can be shown once, and the text to show for it."""
    error = rank.exception
    if isinstance(error, RankTestError):
        return f"failed: {error.crash.splitlines()[0]}", error.text
    what = outcome.describe(rank.rank).removeprefix(f"rank {rank.rank} ")
    if rank.rank in ends:
        end = ends[rank.rank]
        verb = end.ended + (f" ({end.reason})" if end.reason else "")
        what = what.replace("returned", verb, 1)
    return what, rank.traceback or rank.stack


def _error(outcome: Outcome, shown: Sequence[int], headline: str) -> BaseException:
    """The exception the test fails with: the culprit's own where there is one, so that xfail(raises=…) sees it."""
    if not shown:
        return FaultNotFired(headline)
    rank = outcome.ranks[shown[0]]
    match rank.status:
        case Status.RAISED:
            return rank.error or WorldError(headline, rank.rank)
        case Status.DIED:
            return RankDied(headline, rank.rank)
        case Status.STUCK:
            return RankStuck(headline, rank.rank)
        case Status.RETURNED:
            return RanksDisagree(headline, rank.rank)
