"""A score as it is written: with what its verdict says of calls, and what ranks did not come to any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rankdrill.diagnosis import FindingKind
from rankdrill.replay.findings import NOT_COME_TO
from rankdrill.replay.score import Call, Part, Score
from rankdrill.step import NEW_GROUP

__all__ = ["COUNTED_ON", "staged"]

_HALVES = {"send": "recv", "recv": "send"}
_AWAITING = frozenset({"get", "wait"})
COUNTED_ON = "counted on"
"""The value of a store's call that sets what follows from what the call before it got, and of that one."""


def staged(score: Score) -> Score:
    """What is to be written for `score`."""
    match score.kind:
        case FindingKind.DEADLOCK:
            return replace(score, parts=tuple(_with_the_rest(score.parts)))
        case FindingKind.LEAKED_GROUP:
            return _groups_by_members(score)
        case FindingKind.LOST_UPDATE:
            return replace(score, parts=tuple(_with_updates(score.parts, score.culprits)))
    return score


def _with_the_rest(parts: Sequence[Part]) -> Iterator[Part]:
    """Whoever is waited for in a circle would come, behind the call that it is in, to what the other waits for."""
    stuck = {part.rank: part.calls[-1] for part in parts if part.calls and not part.end.how}
    for part in parts:
        last = stuck.get(part.rank)
        rest = []
        for rank, call in stuck.items() if last is not None and last.op not in _HALVES else ():
            if call.op in _HALVES and call.peer == part.rank:
                rest.append(replace(call, op=_HALVES[call.op], peer=rank, via="", site=NOT_COME_TO, waits=True))
        for rank, call in stuck.items() if last is not None else ():
            if call.op in _AWAITING and call.key and part.rank == _other(rank, stuck):
                rest.append(Call("set", key=call.key, value="'1'", site=NOT_COME_TO))
        yield replace(part, calls=(*part.calls, *rest))


def _other(rank: int, stuck: dict[int, Call]) -> int:
    """Who sets the key that `rank` waits for: with two in the circle it is the other."""
    return next((other for other in stuck if other != rank), rank)


def _groups_by_members(score: Score) -> Score:
    """Groups of the same ranks are one name, which each of them in turn is called by."""
    first: dict[tuple[int, ...], str] = {}
    for name, members in score.groups.items():
        first.setdefault(members, name)
    names = {name: first[members] for name, members in score.groups.items()}
    parts = tuple(
        replace(part, calls=tuple(replace(call, group=names.get(call.group, call.group)) for call in part.calls))
        for part in score.parts
    )
    # As many as are made; numbers count within each.
    parts = tuple(replace(part, calls=tuple(_uncounted(call) for call in part.calls)) for part in parts)
    return replace(score, parts=parts, groups={name: members for members, name in first.items()})


def _uncounted(call: Call) -> Call:
    return replace(call, group="default") if call.op == NEW_GROUP else call


def _with_updates(parts: Sequence[Part], culprits: Sequence[int]) -> Iterator[Part]:
    for part in parts:
        calls = list(part.calls)
        for at, call in enumerate(calls[1:], start=1):
            before = calls[at - 1]
            if part.rank in culprits and (before.op, call.op) == ("get", "set") and before.key == call.key:
                calls[at - 1], calls[at] = replace(before, value=COUNTED_ON), replace(call, value=COUNTED_ON)
        yield replace(part, calls=tuple(calls))
