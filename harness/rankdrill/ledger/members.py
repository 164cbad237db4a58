"""The members of a process group as text that fits the ledger's records: ``ranks=0-25,30,32-62:2``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from rankdrill.ledger.format import FINGERPRINT_BYTES

__all__ = [
    "DEVICE_BACKENDS",
    "MOST_RANKS",
    "ON_DEVICE",
    "PARTLY_ON_DEVICE",
    "members_of",
    "ranks_in",
    "spell_members",
    "told_in",
]

ON_DEVICE = 1  # the mark of a group whose calls go on, on a device, after they have returned
PARTLY_ON_DEVICE = 2  # of one where those do whose tensors lie there: `Step.device`
DEVICE_BACKENDS = ("nccl", "xccl", "hccl", "ucc")
"""The backends of such groups. A handle's wait is over once the host may go on, which is before the collective is."""
SHORTEST_RUN = 3  # `0,1` reads better than `0-1` and is no longer
MOST_RANKS = 1 << 16  # that a group is believed to have: a ledger may be damaged
_RUN = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_RECORD = re.compile(r"ranks=([\d,:-]*)(?: part=(\d+)/(\d+))?")


def spell_members(ranks: Sequence[int], room: int = FINGERPRINT_BYTES) -> list[str]:
    """Texts of at most `room` bytes that say together which global `ranks` a group has, by rank in the group.

    Nearly every group needs one. Of several, each says which part it is, and of how many.
    """
    runs = list(_runs(ranks))
    whole = f"ranks={','.join(runs)}"
    if len(whole) <= room:
        return [whole]
    room -= len(f"ranks= part={len(runs)}/{len(runs)}")
    parts: list[str] = []
    for run in runs:
        if parts and len(parts[-1]) + 1 + len(run) <= room:
            parts[-1] += f",{run}"
        else:
            parts.append(run)
    return [f"ranks={part} part={number}/{len(parts)}" for number, part in enumerate(parts, 1)]


def _runs(ranks: Sequence[int]) -> Iterator[str]:
    """Ranks at equal distances taken together: meshes are made of such groups."""
    at = 0
    while at < len(ranks):
        stride = ranks[at + 1] - ranks[at] if at + 1 < len(ranks) else 0
        end = at + 1
        while stride > 0 and end < len(ranks) and ranks[end] - ranks[end - 1] == stride:
            end += 1
        if end - at < SHORTEST_RUN:
            end = at + 1
            yield str(ranks[at])
        else:
            yield f"{ranks[at]}-{ranks[end - 1]}" + (f":{stride}" if stride > 1 else "")
        at = end


def members_of(text: str, most: int = MOST_RANKS) -> tuple[int, ...] | None:
    """The first `most` ranks that `text` tells, by rank in the group; None where it is a part only, or no such text.

    As many as there can be, the size of the world say: a damaged ledger may speak of more than memory holds.
    """
    told, part, parts = told_in(text) or ("", 0, 0)
    return ranks_in(told, most) if part == parts == 1 else None


def told_in(text: str) -> tuple[str, int, int] | None:
    """Which members `text` tells, as which part, from 1, of how many; None where it is no such text."""
    found = _RECORD.fullmatch(text)
    if found is None:
        return None
    part, parts = int(found[2] or 1), int(found[3] or 1)
    return (found[1], part, parts) if 1 <= part <= parts else None


def ranks_in(told: str, most: int = MOST_RANKS) -> tuple[int, ...]:
    """The first `most` ranks of which ``0-25,30`` speaks."""
    return tuple(islice(_ranks(told), most))


def _ranks(text: str) -> Iterator[int]:
    for found in _RUN.finditer(text):
        low, high, stride = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        yield from range(low, high + 1, max(stride, 1))
