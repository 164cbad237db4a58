"""What torch refuses before there is a call, so that there is nothing to compare with the others' (torch 2.13).

A root that is no member of the group: most often one counted in the group where torch counts in the world. A message
that does not lie in order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called
from rankdrill.diagnosis.ddp import Raised
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.step import Site

__all__ = ["refused_by_torch"]

_REFUSED = re.compile(r"^Global rank (\d+) is not part of group ")
_OUT_OF_ORDER = re.compile(r"\btensor has to be contiguous\b")
_MESSAGES = frozenset({"irecv", "isend", "recv", "send"})
_ROOTED = frozenset(
    {"broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "scatter", "scatter_object_list"}
)


def refused_by_torch(raised: Mapping[int, Raised]) -> Finding | None:
    """What is wrong where all of `raised`, by rank, are such errors of one op; None where one is not, or none is."""
    return _root_of_no_member(raised) or _message_out_of_order(raised)


def _message_out_of_order(raised: Mapping[int, Raised]) -> Finding | None:
    if not all(_OUT_OF_ORDER.search(message) for message, _ in raised.values()):
        return None
    ops = {_op_of(site, _MESSAGES) for _, site in raised.values()}
    if len(ops) != 1 or not (op := ops.pop()):
        return None
    ranks = sorted(raised)
    calls = "calls" if len(ranks) == 1 else "call"
    did = f"{calls} {op} with a tensor that is not contiguous; give it .contiguous()"
    side = side_of(ranks, did, [raised[rank][1] for rank in ranks])
    return Finding(FindingKind.LAYOUT, op, "strides", (side,), tuple(ranks))


def _root_of_no_member(raised: Mapping[int, Raised]) -> Finding | None:
    by_root: dict[str, list[int]] = {}
    ops: set[str] = set()
    for rank, (message, site) in raised.items():
        refused, op = _REFUSED.match(message), _op_of(site, _ROOTED)
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


def _op_of(site: Site | None, ops: frozenset[str]) -> str:
    """The one of `ops` that is called at the line; nothing where there is none, or several."""
    function = function_around(site) if site is not None else None
    if site is None or function is None:
        return ""
    called = {name_called(call) for call in calls_at(function, site.line)} & ops
    return called.pop() if len(called) == 1 else ""
