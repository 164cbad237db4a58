"""What torch refuses before there is a call, so that there is nothing to compare with the others' (torch 2.13).

A root that is no member of the group: most often one counted in the group where torch counts in the world. A message
that does not lie in order. Tensors that do not fit each other, or are not as many as there are ranks.
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
_UNFIT = re.compile(  # as gloo says it, and torch of splits
    r"^(?:ProcessGroupGloo::\w+: )?"
    r"(?P<what>invalid tensor (?:size|type) at index \d+ .*|Incorrect (?:input|output) list size .*"
    r"|invalid (?:input|output) tensor list at index \d+ .*|\[enforce fail at .*\] in->size == out->size"
    r"|Split sizes doesn't match total dim 0 size|Tensor's dim 0 does not divide equally across group size"
    r"|Invalid usage of tensors with different dtypes.*)"
)
_UNFIT_OPS = frozenset(
    {"all_gather", "all_to_all", "all_to_all_single", "gather", "reduce_scatter", "reduce_scatter_tensor", "scatter"}
)
_MESSAGES = frozenset({"irecv", "isend", "recv", "send"})
_ROOTED = frozenset(
    {"broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "scatter", "scatter_object_list"}
)


def refused_by_torch(raised: Mapping[int, Raised], size: int) -> Finding | None:
    """What is wrong where all of `raised`, by rank of `size`, are such errors of one op; None where one is not, or none
    is.
    """
    found = _root_of_no_member(raised) or _message_out_of_order(raised)
    if found is not None or len(raised) == size:  # what all ranks do alike, any of them says best
        return found
    return _unfit(raised)


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


def _unfit(raised: Mapping[int, Raised]) -> Finding | None:
    refused = {rank: (_UNFIT.match(message), _op_of(site, _UNFIT_OPS)) for rank, (message, site) in raised.items()}
    told = {(said["what"].rstrip(" ."), op) for said, op in refused.values() if said is not None and op}
    if len(told) != 1 or any(said is None or not op for said, op in refused.values()):
        return None
    ((what, op),) = told
    of_dtype = "type" in what
    ranks = sorted(raised)
    calls = "calls" if len(ranks) == 1 else "call"
    side = side_of(ranks, f"{calls} {op} with tensors that do not fit: {what}", [raised[rank][1] for rank in ranks])
    kind, argument = (FindingKind.DATATYPE, "dtype") if of_dtype else (FindingKind.SIZE, "size")
    return Finding(kind, op, argument, (side,), tuple(ranks))


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
