"""A score as it is written: with what its verdict says of calls, and what ranks did not come to any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis import FindingKind
from rankdrill.replay.findings import NOT_COME_TO
from rankdrill.replay.score import Call, Part, Score
from rankdrill.step import ANYBODY, FILE_LOCKS

__all__ = ["ADDED_TO", "COUNTED_ON", "DESTROY", "IF_NOT_THERE", "LATE", "OWN", "WHAT_CAME", "staged"]

_HALVES = {"send": "recv", "recv": "send"}
DESTROY = "destroy_process_group"
_AWAITING = frozenset({"get", "wait"})
COUNTED_ON = "counted on"
"""The value of a store's call that sets what follows from what the call before it got, and of that one."""
ADDED_TO = "added to"
"""The same, of a text."""
IF_NOT_THERE = "if not there"
"""That of one that sets a key which it has not found."""
LATE = "late"
"""The op of what comes when others are done."""
OWN = "own"
"""The value of a message that says who sent it."""
WHAT_CAME = "what came"
"""That of a call which gives on what came first of the messages before."""
_GIVING = frozenset({"all_reduce", "broadcast", "reduce", "send"})


def staged(score: Score) -> Score:
    """What is to be written for `score`. Locks of files are part of a deadlock alone: there one file stands for all."""
    if score.kind != FindingKind.DEADLOCK:
        score = replace(score, parts=tuple(_without_locks(part) for part in score.parts))
    match score.kind:
        case FindingKind.DEADLOCK:
            score = replace(score, parts=tuple(_with_the_rest(score.parts)))
            return replace(score, parts=tuple(_in_two_orders(score)))
        case FindingKind.LEAKED_GROUP:
            return _groups_by_members(score)
        case FindingKind.RACE:
            return replace(score, parts=tuple(_in_turn(part, score.culprits) for part in score.parts))
        case FindingKind.MISSING_KEY:
            return replace(score, parts=tuple(_after_it_was_deleted(score.parts)))
        case FindingKind.LOST_UPDATE:
            return replace(score, parts=tuple(_with_updates(score.parts, score.culprits)))
    return score


def _without_locks(part: Part) -> Part:
    return replace(part, calls=tuple(call for call in part.calls if call.op not in FILE_LOCKS))


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
                rest.append(Call("set", key=call.key, value="'1'", site=f"rank {part.rank} has {NOT_COME_TO} it"))
        yield replace(part, calls=(*part.calls, *rest))


def _in_two_orders(score: Score) -> Iterator[Part]:
    """Whoever waits in a group for one that waits in another would have made the same call there, too."""
    stuck = [part.calls[-1] for part in score.parts if part.calls and not part.end.how]
    for part in score.parts:
        last = part.calls[-1] if part.calls and not part.end.how else None
        if last is None or last.number < 0:
            yield part
            continue
        alike = [call.group for call in stuck if call.number >= 0 and call.op == last.op and call.group != last.group]
        mine = [group for group in dict.fromkeys(alike) if part.rank in score.members_of(group)]
        yield replace(part, calls=(*part.calls[:-1], replace(last, then=tuple(mine))))


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
    if set(score.culprits) != {rank for members in first for rank in members}:
        parts = tuple(part if part.rank in score.culprits else _destroying(part, first) for part in parts)
    return replace(score, parts=parts, groups={name: members for members, name in first.items()})


def _destroying(part: Part, names: Mapping[tuple[int, ...], str]) -> Part:
    """The rank destroys each group when it has called on it."""
    calls: list[Call] = []
    for at, call in enumerate(part.calls):
        calls.append(call)
        last = call.group in names.values() and (at + 1 == len(part.calls) or part.calls[at + 1].group != call.group)
        calls += [Call(DESTROY, call.group, site=call.site)] * last
    return replace(part, calls=tuple(calls))


def _in_turn(part: Part, culprits: Sequence[int]) -> Part:
    """Receives from anybody that a culprit makes in a row are one, of so many; and messages say whose they are."""
    calls: list[Call] = []
    for call in part.calls:
        again = bool(calls) and calls[-1].op == call.op and (calls[-1].site, calls[-1].tag) == (call.site, call.tag)
        if part.rank in culprits and call.op == "recv" and call.peer == ANYBODY:
            many = int(calls[-1].value) + 1 if again and calls[-1].value else 1
            calls[len(calls) - (many > 1) :] = [replace(call, value=str(many), via="recv")]
        else:
            given_on = bool(calls) and calls[-1].value.isdecimal() and call.op in _GIVING
            mine = WHAT_CAME if given_on else OWN if call.op == "send" else ""
            calls.append(replace(call, value=mine) if mine else call)
    return replace(part, calls=tuple(calls))


def _after_it_was_deleted(parts: Sequence[Part]) -> Iterator[Part]:
    """Whoever waits for a key that was there comes when it is gone."""
    deleted = {call.key for part in parts for call in part.calls if call.op == "delete_key"}
    for part in parts:
        late = bool(part.calls) and not part.end.how and part.calls[-1].key in deleted
        yield replace(part, calls=(*part.calls[:-1], Call(LATE), part.calls[-1])) if late else part


def _with_updates(parts: Sequence[Part], culprits: Sequence[int]) -> Iterator[Part]:
    for part in parts:
        calls = list(part.calls)
        for at, call in enumerate(calls[1:], start=1):
            before = calls[at - 1]
            if part.rank not in culprits or call.op != "set" or before.key != call.key:
                continue
            how = COUNTED_ON if _is_number(call.value) else ADDED_TO
            if before.op == "get":
                calls[at - 1], calls[at] = replace(before, value=how), replace(call, value=how)
            elif before.op == "check":
                calls[at - 1], calls[at] = replace(before, value=IF_NOT_THERE), replace(call, value=IF_NOT_THERE)
        yield replace(part, calls=tuple(call for call in calls if (call.op, call.value) != ("check", IF_NOT_THERE)))


def _is_number(shown: str) -> bool:
    return shown.strip("'").replace(".", "", 1).isdecimal()
