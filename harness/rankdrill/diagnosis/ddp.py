"""What DistributedDataParallel found wrong by itself, before any call did not fit: its words name who is at fault."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.step import Site

__all__ = ["is_ddps_own", "said_by_ddp"]

_WRAPPER = "DistributedDataParallel"
_SIZES = re.compile(
    r"params\[(\d+)\] in this process with sizes (\[[^]]*\]) appears not to match sizes of the same param"
)
_STRIDES = re.compile(
    r"params\[(\d+)\] in this process with sizes \[[^]]*\] appears not to match strides of the same param"
)
_COUNTS = re.compile(r"DDP expects same model across all ranks, but Rank \d+ has (\d+) params")
_UNREDUCED = "Expected to have finished reduction in the prior iteration"
_INDICES = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


Raised: TypeAlias = tuple[str, Site | None]
"""What a rank raised, in words, and at which line of the user's."""


def is_ddps_own(message: str) -> bool:
    """Whether it is an error in which DistributedDataParallel says that ranks differ."""
    return _UNREDUCED in message or bool(_model(message))


def said_by_ddp(raised: Mapping[int, Raised], last: Sequence[Site | None]) -> Finding | None:
    """What is wrong where all of `raised` are such errors; None where there is another, or none.

    `last` says, by rank, where each of the ranks has called last.
    """
    size = len(last)
    if not raised:
        return None
    if all(_UNREDUCED in message for message, _ in raised.values()):
        return _unreduced(raised, size) if len(raised) < size else None
    if all(_model(message) for message, _ in raised.values()):
        return _another_model(raised, last)
    return None


def _unreduced(raised: Mapping[int, Raised], size: int) -> Finding | None:
    if 2 * len(raised) > size:
        return None  # most did so: whether the others did too much, nobody can say
    by_words: dict[str, list[int]] = {}
    for rank, (message, _) in raised.items():
        found = _INDICES.search(message)
        which = f"parameters {', '.join(found[1].split())}" if found is not None else "some parameters"
        by_words.setdefault(which, []).append(rank)
    sides = [
        _side(ranks, f"{_verb(ranks, 'leave')} out {_WRAPPER}'s all_reduce of {which}, which got no gradient", raised)
        for which, ranks in by_words.items()
    ]
    culprits = tuple(sorted(raised)) if 2 * len(raised) < size else ()
    return Finding(FindingKind.MISSING, f"{_WRAPPER}'s all_reduce", "", tuple(sides), culprits)


def _another_model(raised: Mapping[int, Raised], last: Sequence[Site | None]) -> Finding | None:
    """Each rank but the first of the group compares its model with that of the first, and raises where it differs.

    Before that each compares how many parameters there are, the first one with the others': then all of them raise.
    """
    alike: dict[str, list[int]] = {}
    for rank, (message, _) in raised.items():
        alike.setdefault(_model(message), []).append(rank)
    sides = [_side(ranks, f"{_verb(ranks, 'make')} {_WRAPPER} {model}", raised) for model, ranks in alike.items()]
    others = [rank for rank in range(len(last)) if rank not in raised]
    laid = all(_STRIDES.search(message) for message, _ in raised.values())
    if others:
        did = f"{_verb(others, 'make')} {_WRAPPER} of another model"
        sides.append(side_of(others, did, [last[rank] for rank in others]))
    if len(sides) == 1:
        return None
    kind, argument = (FindingKind.LAYOUT, "strides") if laid else (FindingKind.SIZE, "size")
    most = max(sides, key=lambda side: len(side.ranks))
    if 2 * len(most.ranks) <= len(last):
        return Finding(kind, _WRAPPER, argument, tuple(sides))
    rest = [side for side in sides if side is not most]
    culprits = tuple(sorted(rank for side in rest for rank in side.ranks))
    return Finding(kind, _WRAPPER, argument, (*rest, most), culprits)


def _model(message: str) -> str:
    """``with sizes [8, 4] of parameter 0``; nothing where the message is of something else."""
    if found := _SIZES.search(message):
        return f"with sizes {found[2]} of parameter {found[1]}"
    if found := _STRIDES.search(message):
        return f"with parameter {found[1]} in another order in memory than the first rank's"
    found = _COUNTS.search(message)
    return f"of {found[1]} parameters" if found is not None else ""


def _side(ranks: list[int], did: str, raised: Mapping[int, Raised]) -> Side:
    return side_of(ranks, did, [raised[rank][1] for rank in ranks])


def _verb(ranks: list[int], verb: str) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb
