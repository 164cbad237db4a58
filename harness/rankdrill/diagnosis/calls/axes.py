"""Ranks in rows and columns that divide at one turn of a line: some call along the rows, others along the columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.tree import is_called_once
from rankdrill.diagnosis.calls.turns import by_line
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import Site, Step

__all__ = ["divided_at_a_turn", "on_another_axis"]

FEWEST = 4  # ranks that have rows and columns


def divided_at_a_turn(
    waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where several wait in a call whose other members were at another group at that turn of the line,
    and met there; None where that is not so, or one of those is at the group of the first by now, or has returned.

    Those that wait would have met as well, had they gone the others' way: they are as many as fill whole groups. Of as
    many on either way nobody can say which was meant.
    """
    if len(views) < FEWEST or any(view.dropped for view in views):
        return None
    lines = [by_line(view) for view in views]
    groups = {name: ranks for view in views for name, ranks in members_in(view).items()}
    seen: set[tuple[str, Site, int]] = set()
    for wait, line in _calls(waits):
        made = [each.get(line, ()) for each in lines]
        turn = len(made[wait.rank]) - 1
        if turn < 0 or (*line, turn) in seen:
            continue
        seen.add((*line, turn))
        chosen = {other: steps[turn] for other, steps in enumerate(made) if turn < len(steps)}
        found = _divided(chosen, waits, returned, groups) if len(chosen) == len(views) else None
        if found is not None:
            return found
    return None


def on_another_axis(
    waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where some wait for one that has returned, and has come to that line as often as they have.

    It left nothing out there: what differs is the first turn at which some were at rows, and some at columns, as each
    was in time. None where that is not so, or as many went either way.
    """
    if len(views) < FEWEST or any(view.dropped for view in views):
        return None
    lines = [by_line(view) for view in views]
    groups = {name: ranks for view in views for name, ranks in members_in(view).items()}
    seen: set[tuple[str, Site]] = set()
    for wait, line in _calls(waits):
        often = len(lines[wait.rank].get(line, ()))
        away = [other for other in wait.missing if other in returned]
        if not away or line in seen or any(len(lines[other].get(line, ())) < often for other in away):
            continue
        seen.add(line)
        made = [each.get(line, ()) for each in lines]
        sizes = {frozenset(len(groups.get(each.target, ())) for each in steps) for steps in made}
        if len(sizes) != 1 or len(min(sizes)) < 2:  # else each rank may be meant to be at a group of its own kind
            continue
        for turn in range(min(map(len, made))):
            chosen = {other: steps[turn] for other, steps in enumerate(made)}
            axes = _axes(chosen, groups)
            if all(_have_met(step.target, chosen, groups) for step in chosen.values()):
                continue
            if axes is None or len(axes) > 1:
                return _of_two_axes(axes or [], chosen)
    return None


def _calls(waits: Mapping[int, Wait]) -> Iterator[tuple[Wait, tuple[str, Site]]]:
    """Who waits in a collective, and at which line: one in which no other is written."""
    once: dict[tuple[str, Site], bool] = {}
    for _, wait in sorted(waits.items()):
        step = wait.record.step
        if step.site is None or step.message is not None:
            continue
        line = step.op, step.site
        if line not in once:
            once[line] = is_called_once(step.site, step.op)
        if once[line]:
            yield wait, line


def _axes(chosen: Mapping[int, Step], groups: Mapping[str, Sequence[int]]) -> list[list[int]] | None:
    """Who has chosen groups of one size, which are rows or columns; None where such groups have a member in common."""
    ranks: dict[int, list[int]] = {}
    names: dict[int, set[str]] = {}
    for rank, step in chosen.items():
        size = len(groups.get(step.target, ()))
        ranks.setdefault(size, []).append(rank)
        names.setdefault(size, set()).add(step.target)
    members = ([rank for name in each for rank in groups.get(name, ())] for each in names.values())
    return list(ranks.values()) if all(len(each) == len(set(each)) for each in members) else None


def _of_two_axes(axes: Sequence[Sequence[int]], chosen: Mapping[int, Step]) -> Finding | None:
    if len(axes) != 2 or len(axes[0]) == len(axes[1]):
        return None
    few, most = sorted(axes, key=len)
    return _told(few, most, chosen)


def _divided(
    chosen: Mapping[int, Step],
    waits: Mapping[int, Wait],
    returned: Collection[int],
    groups: Mapping[str, Sequence[int]],
) -> Finding | None:
    """The same of one turn of one line, at which each rank has `chosen` a group."""
    apart = {rank for rank, step in chosen.items() if _waits_there(step, waits.get(rank))}
    used = {chosen[rank].target for rank in apart}
    met = {name for name in {step.target for step in chosen.values()} - used if _have_met(name, chosen, groups)}
    rest = chosen.keys() - apart
    there_by_now = any(rank in returned or (rank in waits and waits[rank].record.step.target in used) for rank in rest)
    if there_by_now or any(chosen[rank].target not in met for rank in rest):
        return None
    waiting = [groups.get(name, ()) for name in used]
    members = [rank for ranks in waiting for rank in ranks]
    sizes = {len(groups[name]) for name in met}
    disjoint = len(members) == len(set(members)) and all(not rest.isdisjoint(ranks) for ranks in waiting)
    fit = 1 < len(apart) <= len(rest) and len(sizes) == 1 and not len(apart) % max(sizes)
    return _told(apart, rest, chosen) if disjoint and fit else None


def _waits_there(step: Step, wait: Wait | None) -> bool:
    return wait is not None and (wait.record.step.target, wait.record.step.sequence) == (step.target, step.sequence)


def _have_met(group: str, chosen: Mapping[int, Step], groups: Mapping[str, Sequence[int]]) -> bool:
    members = groups.get(group, ())
    return bool(members) and all(other in chosen and chosen[other].target == group for other in members)


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
