"""Groups that do the same side by side, as the pairs of a tensor-parallel layer: others tell which of two is odd.

In a group of two nobody is in the majority. Where the ranks are divided into groups of one size, what the ranks of the
other groups did on theirs is what was to be done on this one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from rankdrill.diagnosis.calls.loops import share_a_loop
from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.sequences import Parting, calls_on, parting
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.calls.split_alike import split_alike
from rankdrill.diagnosis.calls.turns import collectives_of
from rankdrill.diagnosis.calls.words import origin
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import DEFAULT_GROUP, NO_SEQUENCE, Step

__all__ = ["miscounted_beside", "sided_by_siblings"]

_CHOSEN = frozenset({FindingKind.OPERATOR, FindingKind.ROOT})
"""What a group may have chosen for itself: that one other group has chosen something else says little."""


def sided_by_siblings(finding: Finding, views: Sequence[LedgerView]) -> Finding:
    """`finding`, on a call of which two sides disagree, decided by those who made that call on other groups."""
    if finding.culprits or finding.number == NO_SEQUENCE or len(finding.sides) != 2:
        return finding
    siblings = _siblings(finding.group, _groups(views), len(views))
    if finding.kind in _CHOSEN and len(siblings) < 2 and not _by_one_line(finding, siblings, views):
        return finding
    theirs = {
        (step.op, step.digest)
        for group, ranks in siblings.items()
        for rank in ranks
        if (step := calls_on(group, views[rank]).get(finding.number)) is not None
    }
    if len(theirs) != 1:
        return finding
    agreeing = [side for side in finding.sides if theirs == {_made(finding, rank, views) for rank in side.ranks}]
    if len(agreeing) != 1:
        return finding
    (odd,) = (side for side in finding.sides if side is not agreeing[0])
    return replace(finding, sides=(odd, agreeing[0]), culprits=odd.ranks)


def _by_one_line(finding: Finding, siblings: Mapping[str, Sequence[int]], views: Sequence[LedgerView]) -> bool:
    """Whether all ranks make that call from one line, and in each round before it was the same for all groups."""
    groups = {**siblings, finding.group: [rank for side in finding.sides for rank in side.ranks]}
    calls = [calls_on(group, views[rank]) for group, ranks in groups.items() for rank in ranks]
    sites = {step.site for made in calls if (step := made.get(finding.number)) is not None}
    rounds = [{made[number].digest for made in calls if number in made} for number in range(finding.number)]
    return len(sites) == 1 and None not in sites and all(len(digests) == 1 for digests in rounds)


def _made(finding: Finding, rank: int, views: Sequence[LedgerView]) -> tuple[str, int] | None:
    step = calls_on(finding.group, views[rank]).get(finding.number)
    return (step.op, step.digest) if step is not None else None


def miscounted_beside(
    waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """One call too many, or too few, on a group of which half wait for the other half; None where nobody can tell.

    The ranks of other groups tell that have come as far as that half: how many calls they made on theirs.
    """
    asked = {wait.record.step.target for wait in waits.values() if _is_call(wait)}
    groups = _groups(views) if asked - {DEFAULT_GROUP} else {}  # the ledgers of many ranks are read once, not by each
    beside = {group: _siblings(group, groups, len(views)) for group in asked}
    for wait in sorted(waits.values(), key=lambda wait: wait.record.begin_ns):
        siblings = beside[wait.record.step.target] if _is_call(wait) else {}
        members = groups.get(wait.record.step.target, ())
        if not siblings or 2 * len(wait.missing) != len(members):
            continue
        away = wait.missing[0]
        if away in waits and not set(returned).isdisjoint(waits[away].missing):
            continue  # whoever has left that one alone has left them all
        alike = {each.record.step.target: each for each in split_alike(wait, waits, returned)}
        starts = {_start(wait.record.step.target, views[rank]) for rank in members}
        due = {
            len(calls_on(group, views[rank]))
            for group, ranks in siblings.items()
            for rank in ranks
            if group not in alike
            if _come_as_far(rank, away, waits, returned) and _start(group, views[rank]) in starts
        }
        whole = not any(view.dropped for view in views)
        if len(due) == 1 and whole and (found := _told(wait, members, min(due), waits, views)) is not None:
            return _of_all(
                [found, *(_told(each, groups[group], min(due), waits, views) for group, each in alike.items())]
            )
    return None


def _of_all(found: Sequence[Finding | None]) -> Finding | None:
    """Of groups that came apart alike, what is wrong with each."""
    told = [each for each in found if each is not None]
    if len(told) < 2 or len(told) < len(found):
        return told[0]
    odd = [side for each in told for side in each.sides if set(side.ranks) <= set(each.culprits)]
    rest = [side for each in told for side in each.sides if side not in odd]
    culprits = sorted({rank for each in told for rank in each.culprits})
    return replace(told[0], sides=(*odd, *rest), culprits=tuple(culprits))


def _start(group: str, view: LedgerView) -> tuple[int, str]:
    """After how many calls the rank has come to its first one on `group`, and which that is: groups that take turns, or
    do something else, tell nothing of each other.
    """
    for number, step in enumerate(collectives_of(view)):
        if step.target == group:
            return number, step.op
    return NO_SEQUENCE, ""


def _come_as_far(rank: int, away: int, waits: Mapping[int, Wait], returned: Collection[int]) -> bool:
    """Whether both have returned, or wait in one call."""
    if rank in returned or away in returned:
        return rank in returned and away in returned
    if rank not in waits or away not in waits:
        return False
    mine, theirs = waits[rank].record.step, waits[away].record.step
    return (mine.target, mine.sequence) == (theirs.target, theirs.sequence) and mine.sequence != NO_SEQUENCE


def _told(
    wait: Wait, members: Sequence[int], due: int, waits: Mapping[int, Wait], views: Sequence[LedgerView]
) -> Finding | None:
    step = wait.record.step
    away = wait.missing
    here = [rank for rank in members if rank not in away]
    made = {len(calls_on(step.target, views[rank])) for rank in away}
    extra = made == {due} and step.sequence + 1 > due
    if not extra and not (step.sequence + 1 <= due and all(count < due for count in made)):
        return None
    culprits = here if extra else list(away)
    mine, theirs = (_in_order(step, ranks[0], views) for ranks in ((here, away) if extra else (away, here)))
    awaited = side_of(here, f"{'waits' if len(here) == 1 else 'wait'} in {named(step)}", [step.site] * len(here))
    if not extra and all(rank in waits and _is_still_to_come(step, waits[rank]) for rank in away):
        sides = (*(_early(waits[rank]) for rank in culprits), awaited)
        return Finding(FindingKind.CALL_ORDERING, named(step), "op", sides, tuple(sorted(culprits)))
    parted = parting(theirs, mine, complete=True)
    kind = FindingKind.EXTRA if extra else FindingKind.MISSING
    odd = origin(culprits, parted or Parting(kind, step), views[here[0]], views[culprits[0]])
    return Finding(kind, named(step), "", (odd, awaited), tuple(sorted(culprits)), step.target, step.sequence)


def _is_still_to_come(step: Step, wait: Wait) -> bool:
    """Whether the call is written behind where the rank waits, outside of a loop around both: it was not left out."""
    here = wait.record.step.site
    if here is None or step.site is None:
        return False
    return order_of(here, step.site) is Order.AFTER and not share_a_loop(here, step.site)


def _early(wait: Wait) -> Side:
    step = wait.record.step
    return side_of([wait.rank], f"came first to {named(step)}", [step.site])


def _in_order(step: Step, rank: int, views: Sequence[LedgerView]) -> list[Step]:
    calls = calls_on(step.target, views[rank])
    return [calls[number] for number in sorted(calls) if number <= step.sequence]


def _is_call(wait: Wait) -> bool:
    return wait.record.step.sequence != NO_SEQUENCE and wait.record.step.message is None


def _siblings(group: str, groups: Mapping[str, tuple[int, ...]], size: int) -> dict[str, tuple[int, ...]]:
    """Of all `groups` those of as many others that it and they divide the ranks into; none, if divided otherwise, too.

    They have been made in a row, and no other has the same ranks as this one: a group of the other ranks that was made
    for something else says nothing of this one.
    """
    mine = set(groups.get(group, ()))
    if group == DEFAULT_GROUP or not mine:
        return {}
    known = {name: ranks for name, ranks in groups.items() if name != group}
    if any(mine == set(ranks) for ranks in known.values()):
        return {}
    alike = {name: ranks for name, ranks in known.items() if len(ranks) == len(mine) and mine.isdisjoint(ranks)}
    taken = [rank for ranks in alike.values() for rank in ranks]
    divided = sorted([*taken, *mine]) == list(range(size))
    return alike if divided and _made_in_a_row([group, *alike]) else {}


def _made_in_a_row(groups: Sequence[str]) -> bool:
    """Whether groups of these names were; torch numbers them as they are made, but for some that have other names."""
    if not all(group.isdecimal() for group in groups):
        return True
    numbers = sorted(map(int, groups))
    apart = {later - earlier for earlier, later in pairwise(numbers)}
    # Others may be made in turn with them, each time as many.
    return apart == {1} or (len(apart) == 1 and len(numbers) > 2)


def _groups(views: Sequence[LedgerView]) -> dict[str, tuple[int, ...]]:
    return {name: ranks for view in views for name, ranks in members_in(view).items()}
