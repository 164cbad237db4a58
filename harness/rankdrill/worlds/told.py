"""What came of a run, told: the headline, culprits in full, victims that suffer alike in a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rankdrill.diagnosis import FindingKind, name_ranks
from rankdrill.errors import WorldError
from rankdrill.worlds.failing_together import failed_together
from rankdrill.worlds.found import CHECKS, UNNOTICED
from rankdrill.worlds.outcome import Outcome, Verdict
from rankdrill.worlds.rank_outcome import RankOutcome, RenderedError
from rankdrill.worlds.victims import said_of, victim_lines

__all__ = [
    "Block",
    "Told",
    "blocks_of",
    "how_meant",
    "if_longer",
    "lacks_gpus",
    "minority_first",
    "share_alike",
    "told_of",
]

MEANT = "if ranks are to differ here, leave it to the backend"
_MEANT_OF = {
    FindingKind.REQUEST_LEAK: "if nobody needs to wait here",
    FindingKind.INPUT_HAZARD: "if nobody minds what is sent or received here",
    FindingKind.LAYOUT: "if it may be taken as it lies in memory",
    FindingKind.LEAKED_GROUP: "if these groups are to stay",
    FindingKind.RACE: "if any of them may come first",
    FindingKind.LOST_UPDATE: "if one update may undo another",
}
_NO_GPU = ("invalid device ordinal", "Duplicate GPU detected")
MOST_IN_FULL = 4  # ways to fail, with their tracebacks
MOST_WAYS = 8  # that are named
MOST_OTHERS = 4  # lines of ranks that failed at the same place, with other values
_PLACE = re.compile(r"^\S+:\d+: ")  # how pytest ends a traceback entry: file:line: what


@dataclass(frozen=True)
class Block:
    """What one or several ranks have to show, alike: a heading and the text below it."""

    heading: str
    text: str = ""


@dataclass(frozen=True)
class Told:
    """What came of a run that failed: the headline, what the culprits have to show, and the victims in a line each.

    `shown` are the ranks at fault, or where those failed by plan those that suffered.
    """

    headline: str
    blocks: list[Block]
    victims: list[str]
    shown: list[int]


def told_of(outcome: Outcome, verbs: Mapping[int, str]) -> Told:
    """What is to be said of `outcome`; see `blocks_of` for `verbs`."""
    culprits = [rank for rank in outcome.culprits if not outcome.ranks[rank].by_plan]
    # A rank at fault by plan explains its victims; then they are all there is to show.
    shown = culprits or ([] if outcome.harness else list(outcome.victims))
    found = {rank for finding in outcome.findings for rank in finding.ranks}
    blocks = [Block(outcome.harness)] if outcome.harness else []
    blocks.extend(Block(finding.lines[0], "\n".join(finding.lines[1:])) for finding in outcome.findings)
    checks = _failed_checks(outcome)
    blocks.extend(blocks_of(outcome, [rank for rank in shown if rank not in found] + checks, verbs))
    if not culprits:  # why the others wait or have lost somebody, which their own errors need not say
        planned = (outcome.ranks[rank] for rank in outcome.culprits)
        blocks.extend(Block(line) for line in victim_lines(planned))
    headline = blocks[0].heading if blocks else next(iter(outcome.unfired), "failed")
    blocks.extend(Block(line) for line in outcome.unfired if line != headline)
    told = {rank for finding in outcome.findings for side in finding.sides for rank in side.ranks}
    victims = victim_lines(outcome.ranks[rank] for rank in outcome.victims if rank not in {*shown, *told, *checks})
    if blocks and blocks[0] == Block(headline):  # the headline says it all
        blocks = blocks[1:]
    return Told(headline, blocks, victims, shown)


def _failed_checks(outcome: Outcome) -> list[int]:
    """The ranks whose checks have missed what nobody else has noticed: that these failed shows what came of it."""
    if not any(finding.kind in UNNOTICED for finding in outcome.findings):
        return []
    return [rank.rank for rank in outcome.ranks if isinstance(rank.error, CHECKS)]


def how_meant(outcome: Outcome) -> str | None:
    """When what was found is no mistake, as the head of the line that says how to say so.

    None where it would be no better without being compared: where ranks wait for ever, or one is gone.
    """
    kind = next((finding.kind for finding in outcome.findings), None)
    lost = any(finding.kind is FindingKind.LOST_RANK for finding in outcome.findings)
    if outcome.verdict is not Verdict.BROKEN or lost:
        return None
    return _MEANT_OF.get(kind, MEANT) if kind else MEANT


def if_longer(outcome: Outcome, deadline: float | None) -> str | None:
    """The head of the line that says how to wait longer, where `deadline`, in seconds, found culprits at their own."""
    if deadline is None or not any(outcome.ranks[rank].out_of_time for rank in outcome.culprits):
        return None
    return f"if that takes longer than the deadline of {deadline:g} s"


def lacks_gpus(outcome: Outcome) -> bool:
    """Whether a rank failed because it has no GPU of its own: by what CUDA, or NCCL, says then."""
    failed = (str(outcome.ranks[rank].error) for rank in (*outcome.culprits, *outcome.victims))
    return any(words in text for text in failed for words in _NO_GPU)


def minority_first(ranks_by_what: Mapping[str, list[int]]) -> str:
    """``rank 2 skipped; ranks 0, 1 passed``: those that differ from most are the likelier culprits."""
    ordered = sorted(ranks_by_what.items(), key=lambda group: len(group[1]))
    return "; ".join(f"{name_ranks(ranks)} {what}" for what, ranks in ordered)


def blocks_of(outcome: Outcome, ranks: Iterable[int], verbs: Mapping[int, str]) -> Iterable[Block]:
    """One block for each way to fail; ranks whose tracebacks run through the same lines share one.

    `verbs` says by rank what else to say than that it returned.
    """
    return share_alike((rank, *_told(outcome, outcome.ranks[rank], verbs)) for rank in ranks)


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
        yield Block(f"{name_ranks(listed)} {said_of(listed, what)}", shown if place < MOST_IN_FULL else "")
    left = sorted(rank for members in ways[MOST_WAYS:] for rank, _, _ in members)
    if left:
        yield Block(f"… and {name_ranks(left)}, in other ways")


def _others(what: str, members: Iterable[tuple[int, str, str]]) -> list[str]:
    """What is not `what`, by rank, in as many lines as are read."""
    others: dict[str, list[int]] = {}
    for rank, other, _ in sorted(members):
        if other != what:
            others.setdefault(other, []).append(rank)
    lines = [f"{name_ranks(ranks)} {said_of(ranks, other)}" for other, ranks in list(others.items())[:MOST_OTHERS]]
    left = sorted(rank for ranks in list(others.values())[MOST_OTHERS:] for rank in ranks)
    each = "each " if len(left) > 1 else ""
    return [*lines, f"… and {name_ranks(left)} likewise, {each}with values of its own"] if left else lines


def _told(outcome: Outcome, rank: RankOutcome, verbs: Mapping[int, str]) -> tuple[str, str]:
    """What a rank did, without its number so that equal ones can be shown once, and the text to show for it."""
    error = rank.exception
    if isinstance(error, RenderedError):
        if own := failed_together(rank.error, rank.ledger).get(rank.rank):
            return f"failed: {own}", error.text
        exits = isinstance(rank.error, SystemExit | KeyboardInterrupt) and rank.site is not None
        return f"failed: {error.crash.splitlines()[0]}{f' at {rank.site}' if exits else ''}", error.text
    if isinstance(error, WorldError):  # says it all: below are only rankdrill's own frames
        return f"failed: {error}", ""
    what = outcome.describe(rank.rank).removeprefix(f"rank {rank.rank} ")
    return what.replace("returned", verbs.get(rank.rank, "returned"), 1), rank.traceback or rank.stack
