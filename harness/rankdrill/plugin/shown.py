"""How the failure of a test on ranks is shown: the headline, culprits in full, victims that suffer alike in a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis import name_ranks
from rankdrill.errors import WorldError
from rankdrill.plugin.ends import PhaseEnd
from rankdrill.plugin.pytest_seam import ReprFileLocation, TerminalRepr, TerminalWriter
from rankdrill.worlds import Outcome, RankOutcome, Status
from rankdrill.worlds.rank_outcome import RenderedError

__all__ = ["Block", "MergedFailure", "blocks_of", "minority_first", "share_alike", "victim_lines"]

VICTIM_WIDTH = 120
MOST_IN_FULL = 4  # ways to fail, with their tracebacks
MOST_WAYS = 8  # that are named
MOST_VICTIMS = 8  # lines of them
MOST_OTHERS = 4  # lines of ranks that failed at the same place, with other values
_PLURAL = {"was": "were", "waits": "wait", "is": "are"}
_PLACE = re.compile(r"^\S+:\d+: ")  # how pytest ends a traceback entry: file:line: what
_SOURCE = re.compile(r"\[/\S+:\d+\] ")  # gloo's messages begin with a path on the machine that built torch
_CALLED = re.compile(r", called at .+?:\d+ in \S+")  # of a victim the line is enough


@dataclass(frozen=True)
class Block:
    """What one or several ranks have to show, alike: a heading and the text below it."""

    heading: str
    text: str = ""


class MergedFailure(TerminalRepr):
    """The failure section of a test on ranks."""

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
                if block.text:
                    tw.line("")
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


def minority_first(ranks_by_what: Mapping[str, list[int]]) -> str:
    """``rank 2 skipped; ranks 0, 1 passed``: those that differ from most are the likelier culprits."""
    ordered = sorted(ranks_by_what.items(), key=lambda group: len(group[1]))
    return "; ".join(f"{name_ranks(ranks)} {what}" for what, ranks in ordered)


def victim_lines(ranks: Iterable[RankOutcome]) -> list[str]:
    """One line for each way to suffer, that of most ranks first where there are many ways, and the rest counted."""
    alike: dict[str, list[int]] = {}
    for rank in ranks:
        alike.setdefault(_suffered(rank).removeprefix(f"rank {rank.rank} "), []).append(rank.rank)
    ways = list(alike.items())
    if len(ways) > MOST_VICTIMS:
        ways.sort(key=lambda way: -len(way[1]))
    lines = [f"{name_ranks(those)} {_of(those, does)}" for does, those in ways[:MOST_VICTIMS]]
    left = sorted(rank for _, those in ways[MOST_VICTIMS:] for rank in those)
    return [*lines, f"… and {name_ranks(left)}, in other ways"] if left else lines


def _suffered(rank: RankOutcome) -> str:
    """One line, cut where a transport's message begins to chat."""
    line = _CALLED.sub("", _SOURCE.sub("", str(rank).splitlines()[0]))
    raised = rank.status is Status.RAISED  # an error before that was dealt with
    where = next((record.step for record in reversed(rank.ledger.records) if raised and record.error), None)
    chat = raised and len(line) > VICTIM_WIDTH
    cut = line if not chat else line[: VICTIM_WIDTH - 1] + "…"
    return f"{cut} [in {where}]" if where else cut


def blocks_of(outcome: Outcome, ranks: Iterable[int], ends: Mapping[int, PhaseEnd]) -> Iterable[Block]:
    """One block for each way to fail; ranks whose tracebacks run through the same lines share one."""
    return share_alike((rank, *_told(outcome, outcome.ranks[rank], ends)) for rank in ranks)


def share_alike(told: Iterable[tuple[int, str, str]]) -> Iterable[Block]:
    """Blocks from (rank, what it did, text to show)."""
    alike: dict[tuple[str, ...], list[tuple[int, str, str]]] = {}
    for rank, what, text in told:
        # Values differ between ranks (addresses, the rank's own number); what failed where does not.
        places = tuple(line for line in text.splitlines() if _PLACE.match(line))
        alike.setdefault(places or (what,), []).append((rank, what, text))
    ways = list(alike.values())
    for place, members in enumerate(ways[:MOST_WAYS]):
        _, what, text = members[0]
        others = _others(what, members)
        shown = "\n".join([text, *others]) if others else text
        listed = sorted(rank for rank, _, _ in members)
        yield Block(f"{name_ranks(listed)} {_of(listed, what)}", shown if place < MOST_IN_FULL else "")
    left = sorted(rank for members in ways[MOST_WAYS:] for rank, _, _ in members)
    if left:
        yield Block(f"… and {name_ranks(left)}, in other ways")


def _others(what: str, members: Iterable[tuple[int, str, str]]) -> list[str]:
    """What is not `what`, by rank, in as many lines as are read."""
    others: dict[str, list[int]] = {}
    for rank, other, _ in sorted(members):
        if other != what:
            others.setdefault(other, []).append(rank)
    lines = [f"{name_ranks(ranks)} {_of(ranks, other)}" for other, ranks in list(others.items())[:MOST_OTHERS]]
    left = sorted(rank for ranks in list(others.values())[MOST_OTHERS:] for rank in ranks)
    each = "each " if len(left) > 1 else ""
    return [*lines, f"… and {name_ranks(left)} likewise, {each}with values of its own"] if left else lines


def _of(ranks: Sequence[int], what: str) -> str:
    """What is said of one rank, as it is said of `ranks`."""
    return what if len(ranks) == 1 else _of_several(what)


def _of_several(what: str) -> str:
    verb, _, rest = what.partition(" ")
    return f"{_PLURAL.get(verb, verb)} {rest}"


def _told(outcome: Outcome, rank: RankOutcome, ends: Mapping[int, PhaseEnd]) -> tuple[str, str]:
    """What a rank did, without its number so that equal ones can be shown once, and the text to show for it."""
    error = rank.exception
    if isinstance(error, RenderedError):
        exits = isinstance(rank.error, SystemExit) and rank.site is not None
        return f"failed: {error.crash.splitlines()[0]}{f' at {rank.site}' if exits else ''}", error.text
    if isinstance(error, WorldError):  # says it all: below are only rankdrill's own frames
        return f"failed: {error}", ""
    what = outcome.describe(rank.rank).removeprefix(f"rank {rank.rank} ")
    if rank.rank in ends:
        end = ends[rank.rank]
        verb = end.ended + (f" ({end.reason})" if end.reason else "")
        what = what.replace("returned", verb, 1)
    return what, rank.traceback or rank.stack
