"""Ranks in rows and columns that divide at one turn of a line: some call along the rows, others along the columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.tree import is_called_once
from rankdrill.diagnosis.calls.turns import by_line
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import Step

__all__ = ["divided_at_a_turn"]

FEWEST = 4  # ranks that have rows and columns


def divided_at_a_turn(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where several wait in a call whose other members were at another group at that turn of the line,
    and met there; None where that is not so.

    Those that wait would have met as well, had they gone the others' way: they are as many as fill whole groups. Of as
    many on either way nobody can say which was meant.
    """
    if len(views) < FEWEST or any(view.dropped for view in views):
        return None
    lines = [by_line(view) for view in views]
    groups = {name: ranks for view in views for name, ranks in members_in(view).items()}
    for rank, wait in sorted(waits.items()):
        step = wait.record.step
        if step.site is None or step.message is not None or not is_called_once(step.site, step.op):
            continue
        made = [line.get((step.op, step.site), ()) for line in lines]
        turn = len(made[rank]) - 1
        chosen = {other: steps[turn] for other, steps in enumerate(made) if 0 <= turn < len(steps)}
        apart = {other for other in chosen if _waits_there(chosen[other], waits.get(other))}
        met = {other for other in chosen.keys() - apart if _meets(chosen[other], chosen, groups)}
        if len(chosen) == len(views) == len(apart) + len(met) and _explained(apart, met, chosen, groups):
            return _told(apart, met, chosen)
    return None


def _waits_there(step: Step, wait: Wait | None) -> bool:
    return wait is not None and (wait.record.step.target, wait.record.step.sequence) == (step.target, step.sequence)


def _meets(step: Step, chosen: Mapping[int, Step], groups: Mapping[str, Sequence[int]]) -> bool:
    members = groups.get(step.target, ())
    return bool(members) and all(other in chosen and chosen[other].target == step.target for other in members)


def _explained(
    apart: Collection[int], met: Collection[int], chosen: Mapping[int, Step], groups: Mapping[str, Sequence[int]]
) -> bool:
    """Whether those apart, in groups that share no rank, wait for those that met, and are as many as fill such groups
    as these met in.
    """
    waiting = [groups.get(name, ()) for name in {chosen[rank].target for rank in apart}]
    members = [rank for ranks in waiting for rank in ranks]
    sizes = {len(groups[chosen[rank].target]) for rank in met}
    disjoint = len(members) == len(set(members)) and all(not {*met}.isdisjoint(ranks) for ranks in waiting)
    return 1 < len(apart) <= len(met) and disjoint and len(sizes) == 1 and not len(apart) % max(sizes)


def _told(apart: Collection[int], met: Collection[int], chosen: Mapping[int, Step]) -> Finding:
    sides = (*_sides(apart, chosen), *_sides(met, chosen))
    culprits = tuple(sorted(apart)) if len(apart) < len(met) else ()
    step = chosen[min(apart)]
    return Finding(FindingKind.GROUP, step.call, "group", sides, culprits, step.target, step.sequence)


def _sides(ranks: Collection[int], chosen: Mapping[int, Step]) -> list[Side]:
    by_group: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        by_group.setdefault(chosen[rank].target, []).append(rank)
    return [
        side_of(
            those,
            f"{'calls' if len(those) == 1 else 'call'} {named(chosen[those[0]])} at that turn of the line",
            [chosen[rank].site for rank in those],
        )
        for those in by_group.values()
    ]
