"""Ranks that suffered from what others did, told in a line for each way to suffer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rankdrill.diagnosis import name_ranks
from rankdrill.step import Kind
from rankdrill.worlds.rank_outcome import RankOutcome, Status

__all__ = ["said_of", "suffering_alike", "victim_lines"]

VICTIM_WIDTH = 120
MOST_VICTIMS = 8  # lines of them
_PLURAL = {"was": "were", "waits": "wait", "is": "are"}
_SOURCE = re.compile(r"\[/\S+:\d+\] ")  # gloo's messages begin with a path on the machine that built torch
_OF_OTHERS = frozenset({Kind.COLLECTIVE, Kind.STORE, Kind.GROUP})  # steps in which a rank suffers
_CALLED = re.compile(r", called at .+?:\d+ in \S+")  # of a victim the line is enough


def victim_lines(ranks: Iterable[RankOutcome]) -> list[str]:
    """One line for each way to suffer, that of most ranks first where there are many ways, and the rest counted."""
    return [line for _, line in suffering_alike(ranks)]


def suffering_alike(ranks: Iterable[RankOutcome]) -> list[tuple[list[int], str]]:
    """As `victim_lines`, each line with its ranks."""
    alike: dict[str, list[int]] = {}
    for rank in ranks:
        alike.setdefault(_suffered(rank).removeprefix(f"rank {rank.rank} "), []).append(rank.rank)
    ways = list(alike.items())
    if len(ways) > MOST_VICTIMS:
        ways.sort(key=lambda way: -len(way[1]))
    told = [(those, f"{name_ranks(those)} {said_of(those, does)}") for does, those in ways[:MOST_VICTIMS]]
    left = sorted(rank for _, those in ways[MOST_VICTIMS:] for rank in those)
    return [*told, (left, f"… and {name_ranks(left)}, in other ways")] if left else told


def _suffered(rank: RankOutcome) -> str:
    """One line, cut where a transport's message begins to chat."""
    line = _CALLED.sub("", _SOURCE.sub("", str(rank).splitlines()[0]))
    raised = rank.status is Status.RAISED  # an error before that was dealt with
    failed = [record.step for record in reversed(rank.ledger.records) if raised and record.error]
    # What it did on its way out, in handlers for the end of its process, may have failed, too.
    where = next((step for step in failed if step.kind in _OF_OTHERS), failed[0] if failed else None)
    chat = raised and len(line) > VICTIM_WIDTH
    cut = line if not chat else line[: VICTIM_WIDTH - 1] + "…"
    return f"{cut} [in {where}]" if where else cut


def said_of(ranks: Sequence[int], what: str) -> str:
    """What is said of one rank, as it is said of `ranks`."""
    if len(ranks) == 1:
        return what
    verb, _, rest = what.partition(" ")
    return f"{_PLURAL.get(verb, verb)} {rest}"
