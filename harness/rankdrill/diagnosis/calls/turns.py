"""One line that serves several groups: who, at one turn of it, called on another group than its peers did."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis.calls.loops import group_goes_by_the_element
from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.sequences import calls_on
from rankdrill.diagnosis.calls.tree import is_called_once
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.waits import Wait, all_wait_for
from rankdrill.ledger import LedgerView
from rankdrill.step import NO_SEQUENCE, Kind, Site, Step

__all__ = [
    "ORDER",
    "alone_at_a_turn",
    "another_group_at_a_turn",
    "by_line",
    "collectives_of",
    "places_of",
    "turn_of",
]

ORDER = "order"
"""What differs where ranks go through the same groups, each in an order of its own."""


@dataclass(frozen=True, slots=True)
class _Astray:
    """Rank `rank` made `step` where its peers in another group made `meant` on that one."""

    rank: int
    step: Step
    meant: Mapping[int, Step]


def turn_of(step: Step, view: LedgerView, places: set[tuple[str, int]]) -> int:
    """How often its rank had made such a call by way of one of `places`, this one too; 0 if that is not known."""
    if view.dropped:
        return 0
    turn = 0
    for each in collectives_of(view):
        if each.op == step.op and not places.isdisjoint(places_of(each.site)):
            turn += 1
        if (each.target, each.sequence) == (step.target, step.sequence):
            return turn
    return 0


def another_group_at_a_turn(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """The one rank that at one turn of a line called on another group than its peers; None where not one has.

    At that turn nobody of the group that it called on did, all others of one that it did not call on called on that
    one, and everybody else met; at its next turn it is with its peers again: whoever had left a call out would not be.
    Where the line serves each other rank one group alone, no call left out could have brought it to another.
    It is why ranks wait if one waits for it in the group of its peers, it is ahead of all others in the other one, and
    nobody else would wait for ever.
    """
    if any(view.dropped for view in views):
        return None
    groups = {name: ranks for view in views for name, ranks in members_in(view).items()}
    lines = [by_line(view) for view in views]
    found: list[_Astray] = []
    for line in {line for made in lines for line in made}:
        turns = list(_turns([made.get(line, []) for made in lines], groups))
        odd = [(turn, one) for turn, each in enumerate(turns) for one in each]
        of_one_group = bool(odd) and _serves_one_group_each(line, {one.rank for _, one in odd}, lines, groups)
        found += [one for turn, one in odd if of_one_group or (turn + 1 < len(turns) and not turns[turn + 1])]
        if len({one.rank for _, one in odd}) > 1:
            return None
    found = [one for one in found if _explains(one, groups, waits, views)]
    return _told(found[0], waits, groups) if len(found) == 1 else None


def _serves_one_group_each(
    line: tuple[str, Site],
    odd: Collection[int],
    lines: Sequence[Mapping[tuple[str, Site], Sequence[Step]]],
    groups: Mapping[str, Sequence[int]],
) -> bool:
    """Whether the line is where each rank that is not `odd` calls on a group of its own, none of which share a rank."""
    op, site = line
    if not is_called_once(site, op):
        return False
    used = [{step.target for step in made.get(line, ())} for rank, made in enumerate(lines) if rank not in odd]
    members = [rank for name in set().union(*used) for rank in groups.get(name, ())]
    return all(len(names) <= 1 for names in used) and len(members) == len(set(members))


def alone_at_a_turn(lost: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """The one rank that waits alone on a group of which, at that turn of the line, all others called on groups without
    it; None where not one does.

    A group of one should have been its own, say. None either where one waits for it in a collective: that tells more.
    """
    if any(view.dropped for view in views):
        return None
    awaited = {rank for wait in lost.values() if wait.record.step.message is None for rank in wait.missing}
    groups = {name: ranks for view in views for name, ranks in members_in(view).items()}
    alone = {rank: wait.record.step for rank, wait in lost.items() if rank not in awaited and _is_alone(wait, groups)}
    if not alone:
        return None
    lines = [by_line(view) for view in views]
    found = {rank: meant for rank, step in alone.items() if (meant := _meanwhile(rank, step, lines, groups))}
    if len(found) != 1:
        return None
    ((rank, meant),) = found.items()
    step = alone[rank]
    did = "call on groups without it at that turn of the line"
    others = side_of(list(meant), did, [each.site for each in meant.values()])
    sides = (side_of([rank], f"calls {named(step)}", [step.site]), others)
    return Finding(FindingKind.GROUP, step.call, "group", sides, (rank,), step.target, step.sequence)


def _is_alone(wait: Wait, groups: Mapping[str, Sequence[int]]) -> bool:
    step = wait.record.step
    others = {*groups.get(step.target, ())} - {wait.rank}
    return step.message is None and step.sequence != NO_SEQUENCE and len(others) > 1 and others == {*wait.missing}


def _meanwhile(
    rank: int,
    step: Step,
    lines: Sequence[Mapping[tuple[str, Site], Sequence[Step]]],
    groups: Mapping[str, Sequence[int]],
) -> dict[int, Step]:
    """What the others of its group called at that turn of the line, if all did on groups without `rank`."""
    if step.site is None:
        return {}
    made = [line.get((step.op, step.site), ()) for line in lines]
    turn = len(made[rank]) - 1
    chosen = {other: made[other][turn] for other in groups[step.target] if other != rank and turn < len(made[other])}
    astray = all(rank not in groups.get(each.target, (rank,)) for each in chosen.values())
    return chosen if astray and len(chosen) == len(groups[step.target]) - 1 else {}


def _turns(made: Sequence[Sequence[Step]], groups: Mapping[str, Sequence[int]]) -> Iterator[list[_Astray]]:
    """Who went astray at each turn of one line, of which `made` says what each rank called there.

    As far as two ranks have come: of who is there alone nobody knows what others would have done.
    """
    for turn in range(max(map(len, made))):
        chosen = {rank: steps[turn] for rank, steps in enumerate(made) if turn < len(steps)}
        if len(chosen) < 2:
            return
        if len({step.target for step in chosen.values()}) == 1:  # of many ranks, nearly always
            yield []
            continue
        alone = [_astray(rank, chosen, groups) for rank in chosen]
        yield [one for one in alone if one is not None and _rest_meets(one, chosen, groups)]


def _astray(rank: int, chosen: Mapping[int, Step], groups: Mapping[str, Sequence[int]]) -> _Astray | None:
    step = chosen[rank]
    others = set(groups.get(step.target, ())) - {rank}
    if not others or not others <= chosen.keys() or any(chosen[other].target == step.target for other in others):
        return None
    meant = []
    for name, ranks in groups.items():
        peers = set(ranks) - {rank}
        if rank in ranks and peers and peers <= chosen.keys() and all(chosen[peer].target == name for peer in peers):
            meant.append({peer: chosen[peer] for peer in sorted(peers)})
    return _Astray(rank, step, meant[0]) if len(meant) == 1 else None


def _rest_meets(one: _Astray, chosen: Mapping[int, Step], groups: Mapping[str, Sequence[int]]) -> bool:
    """Whether all others who came to that turn called on the same group as those of its members that did."""
    rest = {rank: step for rank, step in chosen.items() if rank != one.rank and rank not in one.meant}
    return all(
        chosen[other].target == step.target
        for step in rest.values()
        for other in groups.get(step.target, ())
        if other in chosen
    )


def _explains(
    one: _Astray, groups: Mapping[str, Sequence[int]], waits: Mapping[int, Wait], views: Sequence[LedgerView]
) -> bool:
    others = set(groups[one.step.target]) - {one.rank}
    awaited = any(peer in waits and _awaits(waits[peer], one) for peer in one.meant)
    counts = {rank: len(calls_on(one.step.target, views[rank])) for rank in {one.rank, *others}}
    return awaited and all_wait_for(one.rank, waits) and all(counts[one.rank] > counts[other] for other in others)


def _awaits(wait: Wait, one: _Astray) -> bool:
    return one.rank in wait.missing and wait.record.step.target == _meant(one).target


def _meant(one: _Astray) -> Step:
    return next(iter(one.meant.values()))


def _told(one: _Astray, waits: Mapping[int, Wait], groups: Mapping[str, Sequence[int]]) -> Finding:
    meant = _meant(one)
    by_element = one.step.site is not None and group_goes_by_the_element(one.step.site)
    alike = set(groups[one.step.target]) == set(groups[meant.target])  # of others it was built with the wrong one
    if by_element and not alike and (other := _who_alone_knows(one, groups)) is not None:
        return _of_two(one, other)
    alone = len(one.meant) == 1
    did = f"{'calls' if alone else 'call'} {named(meant)} at that turn of the line"
    sides = [
        side_of([one.rank], f"calls {named(one.step)}", [one.step.site]),
        side_of(list(one.meant), did, [step.site for step in one.meant.values()]),
    ]
    waiting = {peer: waits[peer].record.step for peer in one.meant if peer in waits and _awaits(waits[peer], one)}
    for_it = next(iter(waiting.values()))
    if for_it.sequence != meant.sequence:
        verb = "waits" if len(waiting) == 1 else "wait"
        sides.append(
            side_of(list(waiting), f"{verb} for it in {named(for_it)}", [step.site for step in waiting.values()])
        )
    kind = FindingKind.CALL_ORDERING if by_element and alike else FindingKind.GROUP
    return Finding(kind, meant.call, "group", tuple(sides), (one.rank,), meant.target, meant.sequence)


def _who_alone_knows(one: _Astray, groups: Mapping[str, Sequence[int]]) -> int | None:
    """The only one of its peers that has more than the one group, and so an order of them; None if several have."""
    know = [peer for peer in one.meant if sum(peer in ranks for ranks in groups.values()) > 1]
    return know[0] if len(know) == 1 < len(one.meant) else None


def _of_two(one: _Astray, other: int) -> Finding:
    """One goes through the groups in another order than one other; whose is the right one nobody else can say."""
    meant = _meant(one)
    sides = tuple(
        side_of([rank], f"calls {named(step)} at that turn of the line", [step.site])
        for rank, step in sorted({one.rank: one.step, other: one.meant[other]}.items())
    )
    return Finding(FindingKind.CALL_ORDERING, meant.call, ORDER, sides, (), meant.target, meant.sequence)


def by_line(view: LedgerView) -> dict[tuple[str, Site], list[Step]]:
    """The collectives of a rank by their op and the line that they were called from, in order."""
    found: dict[tuple[str, Site], list[Step]] = {}
    for step in collectives_of(view):
        if step.site is not None:
            found.setdefault((step.op, step.site), []).append(step)
    return found


def collectives_of(view: LedgerView) -> Iterator[Step]:
    """What a rank called on groups that are there, each call with its number, in order."""
    for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
        if record.step.sequence != NO_SEQUENCE:
            yield record.step


def places_of(site: Site | None) -> set[tuple[str, int]]:
    """The lines that a call was made by way of: its own, and its callers'."""
    places = set()
    while site is not None:
        places.add(site.place)
        site = site.caller
    return places
