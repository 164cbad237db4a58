"""From what torch's debug server tells to a score: its recorders' calls, or of stacks the one that each rank is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.explain.debug_server.served import Served
from rankdrill.explain.debug_server.stacks import Stack
from rankdrill.replay.cutting import fitted
from rankdrill.replay.from_dumps import score_of_read
from rankdrill.replay.playing import NOBODY_KNOWN, in_words
from rankdrill.replay.score import Call, End, Part, Score
from rankdrill.step import NOBODY
from rankdrill.worlds import Verdict

__all__ = ["score_of_served"]

SIGKILL = 9  # for whatever took a rank that does not answer
_FROM_ROOT = frozenset({"broadcast", "broadcast_object_list", "scatter", "scatter_object_list"})
_TO_ROOT = frozenset({"gather", "gather_object", "reduce"})
_ONE_CALL = "stacks tell only in which call each rank is: no call before it is played"
_OF_ALL = "stacks tell no groups, sizes and types: taken is a call of all ranks with one element of float32"
_ROOTS = "stacks have no roots: taken is a rank for which the others wait"


def score_of_served(served: Served, most: int | None = None) -> Score:
    """What the ranks of the job did, as far as `served` tells; if they were more than `most` those that it needs."""
    if served.read is None:
        score = _of_stacks(served)
        return score if most is None else fitted(score, most)
    read = replace(served.read, explanation=served.explanation)
    return _with_lines(score_of_read(read, most), served.stacks)


def _with_lines(score: Score, stacks: Mapping[int, Stack]) -> Score:
    """The calls that ranks are still in are from where they are: recorders' JSON, and tables, have no lines."""
    parts = []
    for part in score.parts:
        stack = stacks.get(score.ranks[part.rank] if score.ranks else part.rank)
        if stack is not None and stack.site is not None and part.calls and not part.end.how and not part.calls[-1].site:
            last = replace(part.calls[-1], site=_line(stack), via=part.calls[-1].via or stack.site.via)
            part = replace(part, calls=(*part.calls[:-1], last))
        parts.append(part)
    return replace(score, parts=tuple(parts))


def _line(stack: Stack) -> str:
    return f"{stack.site.path}:{stack.site.line}" if stack.site is not None else ""


def _of_stacks(served: Served) -> Score:
    found = served.explanation
    finding = found.causes[0].finding if found.causes else None
    sides = tuple(side.ranks for side in finding.sides) if finding is not None else ()
    away = [rank for rank, stack in sorted(served.stacks.items()) if not stack.call]
    there = [rank for rank, stack in sorted(served.stacks.items()) if stack.call]
    roots = {call: ranks[0] for calls, ranks in ((_FROM_ROOT, away), (_TO_ROOT, there)) for call in calls if ranks}
    parts = tuple(_part(rank, stack, roots) for rank, stack in sorted(served.stacks.items()))
    rooted = any(call.root != NOBODY for part in parts for call in part.calls)
    assumed = (_ONE_CALL, _OF_ALL, *((_ROOTS,) if rooted else ()))
    return Score(max(found.world_size, 1), parts, {}, _verdict(finding), found.gaps, assumed, sides=sides)


def _verdict(finding: Finding | None) -> str:
    if finding is None:
        return NOBODY_KNOWN
    said = in_words(finding)
    lost = finding.kind is FindingKind.LOST_RANK
    return said.replace(str(finding.kind), str(Verdict.DIED), 1) if lost else said


def _part(rank: int, stack: Stack, roots: Mapping[str, int]) -> Part:
    if stack.error:
        return Part(rank, (), End("killed", code=SIGKILL))
    if not stack.call:
        return Part(rank, (), End("returned"))
    root = roots.get(stack.call, 0 if stack.call in _FROM_ROOT else NOBODY)
    return Part(rank, (Call(stack.call, root=root, via=stack.call, site=_line(stack)),))
