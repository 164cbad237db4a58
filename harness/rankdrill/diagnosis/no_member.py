"""A root that is no member of the group: most often one counted in the group where torch counts in the world.

torch refuses it before the call is one, so that there is nothing to compare with the others' (torch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called
from rankdrill.diagnosis.ddp import Raised
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.step import Site

__all__ = ["root_of_no_member"]

_REFUSED = re.compile(r"^Global rank (\d+) is not part of group ")
_ROOTED = frozenset(
    {"broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "scatter", "scatter_object_list"}
)


def root_of_no_member(raised: Mapping[int, Raised]) -> Finding | None:
    """What is wrong where all of `raised`, by rank, are such errors of one op; None where one is not, or none is."""
    by_root: dict[str, list[int]] = {}
    ops: set[str] = set()
    for rank, (message, site) in raised.items():
        refused, op = _REFUSED.match(message), _rooted_op(site)
        if refused is None or not op:
            return None
        by_root.setdefault(refused[1], []).append(rank)
        ops.add(op)
    if len(ops) != 1:
        return None
    (op,) = ops
    sides = [_side(root, ranks, op, raised) for root, ranks in by_root.items()]
    return Finding(FindingKind.ROOT, op, "root", tuple(sides), tuple(sorted(raised)))


def _side(root: str, ranks: list[int], op: str, raised: Mapping[int, Raised]) -> Side:
    calls = "calls" if len(ranks) == 1 else "call"
    did = f"{calls} {op} with root {root}, which is no member of the group; src and dst are ranks of the world"
    return side_of(ranks, did, [raised[rank][1] for rank in ranks])


def _rooted_op(site: Site | None) -> str:
    """The one such op that is called at the line; nothing where there is none, or several."""
    function = function_around(site) if site is not None else None
    if site is None or function is None:
        return ""
    ops = {name_called(call) for call in calls_at(function, site.line)} & _ROOTED
    return ops.pop() if len(ops) == 1 else ""
