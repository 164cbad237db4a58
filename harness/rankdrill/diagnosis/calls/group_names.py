"""Groups that members alone make, which torch names by its members and by how many groups a rank holds.

So members that hold different numbers of groups look for each other under different names, and never meet. And who
makes such a group again, after the first one was destroyed, is given its name again, and meets what the first has left
in the store (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rankdrill.diagnosis.finding import NAME, Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import LEAVES_GROUP, LOCAL_GROUP, Kind, Named, Step

__all__ = ["named_again", "named_apart", "under_other_names"]

_WHY = (
    "torch names such a group by that number, so they never find each other; make it without use_local_synchronization"
)


def under_other_names(waits: Mapping[int, Wait]) -> dict[int, Wait]:
    """The ranks that make a group which others of `waits` make under another name, each with what it waits in."""
    making = {rank: wait for rank, wait in waits.items() if wait.record.step.op == LOCAL_GROUP}
    names: dict[tuple[str, int], set[int]] = {}
    for wait in making.values():
        names.setdefault(_call(wait.record.step), set()).add(_name_in(wait.record.step))
    return {rank: wait for rank, wait in making.items() if len(names[_call(wait.record.step)]) > 1}


def named_apart(waits: Mapping[int, Wait]) -> Finding | None:
    """What is wrong where ranks make one group under different names, and nothing else keeps anybody from its own."""
    apart = under_other_names(waits)
    others = [wait for rank, wait in waits.items() if rank not in apart and wait.record.step.op == LOCAL_GROUP]
    if not apart or any(wait.missing for wait in others):
        return None
    step = min(apart.values(), key=lambda wait: wait.record.begin_ns).record.step
    by_name: dict[int, list[Wait]] = {}
    for wait in apart.values():
        if _call(wait.record.step) == _call(step):
            by_name.setdefault(wait.record.step.digest, []).append(wait)
    sides = [_holding(by_name[digest]) for digest in sorted(by_name, key=lambda digest: Named.of(digest).held)]
    sides[-1] = replace(sides[-1], did=f"{sides[-1].did}: {_WHY}")
    return Finding(FindingKind.GROUP, step.call, NAME, tuple(sides))


def _holding(waits: Iterable[Wait]) -> Side:
    there = {wait.rank: wait.record.step for wait in waits}
    step = next(iter(there.values()))
    held = Named.of(step.digest).held
    verb, holds = ("makes", "it holds") if len(there) == 1 else ("make", "they hold")
    did = f"{verb} {step.call} ({step.fingerprint}) while {holds} {held} group{'s' if held != 1 else ''}"
    return side_of(list(there), did, [step.site for step in there.values()])


def named_again(trouble: Mapping[int, Record], views: Mapping[int, LedgerView]) -> Finding | None:
    """What is wrong where `trouble`, the steps that ranks failed or waited in, has to do with a name given again.

    None where a rank's has not.
    """
    found = {rank: again for rank, record in trouble.items() if (again := _again(record, views[rank])) is not None}
    if not found or found.keys() != trouble.keys():
        return None
    first = next(iter(found.values()))
    made = {rank: record.step for rank, record in found.items() if record.step.digest == first.step.digest}
    step = first.step
    did = (
        f"{'makes' if len(made) == 1 else 'make'} {step.call} ({step.fingerprint}), to which torch gives the name of "
        "one that was destroyed, and meets what that has left in the store: keep the first one, or make it without "
        "use_local_synchronization"
    )
    side = side_of(list(made), did, [step.site for step in made.values()])
    return Finding(FindingKind.GROUP, step.call, NAME, (side,), side.ranks)


def _again(record: Record, view: LedgerView) -> Record | None:
    """The making of the group of `record`, if a group of its name was made, and destroyed, before."""
    name = _name_in(record.step)
    groups = [one for one in view.where(lambda kind, state: kind is Kind.GROUP) if one.index <= record.index]
    made = [one for one in groups if one.step.op == LOCAL_GROUP and _name_in(one.step) == name]
    if len(made) < 2:
        return None
    left = any(one.step.op == LEAVES_GROUP and made[-2].index < one.index < made[-1].index for one in groups)
    return made[-1] if left else None


def _name_in(step: Step) -> int:
    return Named.of(step.digest).mark if step.op == LOCAL_GROUP else Named.mark_of(step.target)


def _call(step: Step) -> tuple[str, int]:
    return step.fingerprint, step.sequence
