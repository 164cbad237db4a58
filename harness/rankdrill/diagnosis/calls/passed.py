"""Ranks that wait in a collective for one that waits for a message: has it gone past their call, or will it come?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.calls.by_rank import may_come
from rankdrill.diagnosis.calls.common_caller import come_round, from_one_function, in_any_loop, loops_below
from rankdrill.diagnosis.calls.loops import share_a_loop
from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.sequences import calls_on, left_out_by_custom
from rankdrill.diagnosis.calls.source import Order, comes_later, comes_to_both, is_besides, made_later_too, order_of
from rankdrill.diagnosis.calls.unmatched import on_top
from rankdrill.diagnosis.calls.words import at_odds, origin
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import BATCH, NO_SEQUENCE, SEND, Kind, Site, Step

__all__ = ["gone_past", "is_behind", "kept_away", "lie_behind"]


def gone_past(
    inside: Wait, outside: Wait, lost: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where `outside` waits for a message, and will not come to the call that `inside` waits in.

    None where it may come. `lost` are all that wait for ever. The fewer are at fault: those that went past the call
    have left it out, or those that are in it have made one more; so have as many, if conditions keep the others away by
    their rank. What a rank did in the rounds before says more. Who is
    in it from a line that `outside` is still to come to has gone past this one, too. Where all others have gone past
    the call, `outside`, which waits for one that is in it, was let down by that one: it speaks for them.
    """
    step, here = inside.record.step, outside.record.step.site
    if step.site is None or here is None:
        return None
    made = {rank: call for rank, view in enumerate(views) if (call := calls_on(step.target, view).get(step.sequence))}
    by_custom = [rank for rank in inside.missing if rank in lost and _by_custom(step, lost[rank], views[rank])]
    past = sorted({*by_custom, *(rank for rank in inside.missing if rank in returned)})
    past = sorted({*past, *(rank for rank in inside.missing if rank in lost and is_behind(step, lost[rank], views))})
    if outside.rank not in past:
        if {*past, outside.rank}.issuperset(inside.missing) and 0 < len(made) <= len(past):
            if _made_instead(step, made, outside):
                return _told(FindingKind.CALL_ORDERING, tuple(made), made, step, outside)
            return _on_top(made, past[0], step, outside, views)
        return _extra(outside, made, step, len(inside.missing), views)
    further_on = [rank for rank, call in made.items() if lie_behind(call.site, step.site, here)]
    mine = {rank: call for rank, call in made.items() if rank not in further_on}
    more = len(past) + len(further_on) > len(mine)
    if not by_custom and (more or (len(past) == len(mine) and _are_kept_away(past, mine))):
        return _on_top(mine, past[0], step, outside, views)
    culprits = tuple(past) if by_custom or len(past) + len(further_on) < len(mine) else ()
    found = _told(FindingKind.MISSING, culprits, made, step, outside)
    return found if culprits else _where_they_part(found, past, made, step, views)


def kept_away(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """A call, of whatever group, in which ranks wait for such as have gone past it, kept away from it by their rank."""
    for wait in waits.values():
        step, missing = wait.record.step, wait.missing
        if step.sequence == NO_SEQUENCE or not missing or any(other not in waits for other in missing):
            continue
        made = {
            rank: each.record.step
            for rank, each in waits.items()
            if (each.record.step.target, each.record.step.sequence) == (step.target, step.sequence)
        }
        if _are_kept_away(missing, made) and all(_has_gone_by(step, waits[other], views) for other in missing):
            return _on_top(made, missing[0], step, waits[missing[0]], views)
    return None


def _has_gone_by(step: Step, wait: Wait, views: Sequence[LedgerView]) -> bool:
    """Whether the rank is behind the call, or has come round a loop to what it waits in once more than who made it."""
    if is_behind(step, wait, views):
        return True
    here = wait.record.step.site
    before = [made for view in views if (made := _before(step, view)) is not None]
    if step.site is None or here is None or not before or not come_round(*from_one_function(here, step.site)):
        return False
    mine = sum(each.site == here for each in _steps(wait, views[wait.rank]))
    return all(mine > made[here] > 0 for made in before)


def _are_kept_away(past: Sequence[int], made: Mapping[int, Step]) -> bool:
    """Whether none of those that are `past` the call may come to it, by their rank, and all that have `made` it may."""
    sites = {call.site for call in made.values()}
    ranks = {*past, *made}
    return all(
        site is not None and is_besides(site) and may_come(site, ranks, plain=True) == made.keys() for site in sites
    )


def _where_they_part(
    found: Finding, past: Sequence[int], made: Mapping[int, Step], step: Step, views: Sequence[LedgerView]
) -> Finding:
    """`found`, of one against one, and first the call that one made before, at a line that the other never was at."""
    ((rank, _), *more), (other, *others) = made.items(), past
    if more or others:
        return found
    call = on_top(step, views[rank], views[other]).call
    if call.site in {step.site, *(theirs.site for theirs in calls_on(step.target, views[other]).values())}:
        return found
    return replace(found, step=named(call), sides=(at_odds([rank], past, call), *found.sides))


def lie_behind(site: Site | None, *others: Site | None) -> bool:
    """Whether it lies behind all `others` in the source."""
    return site is not None and all(other is not None and order_of(other, site) is Order.AFTER for other in others)


def _by_custom(step: Step, wait: Wait, view: LedgerView) -> bool:
    """Whether the rank used to make the call before it came to where it waits now."""
    return left_out_by_custom([step], _steps(wait, view)) is not None


def is_behind(step: Step, wait: Wait, views: Sequence[LedgerView]) -> bool:
    """Whether the rank has gone past the call: it waits behind it in the source, or has come further round a loop."""
    here = wait.record.step.site
    if here is None or step.site is None or made_later_too(step.site, here):
        return False
    sites = {each.site for each in _steps(wait, views[wait.rank])[:-1]}
    in_one_round = not share_a_loop(step.site, here) or sites.isdisjoint({step.site, here})
    if in_one_round and order_of(step.site, here) is Order.AFTER:
        return True
    return _is_a_round_ahead(step, wait, views)


def _is_a_round_ahead(step: Step, wait: Wait, views: Sequence[LedgerView]) -> bool:
    """Whether the rank came more often to what lies behind the call, in one loop with it, than those that made it."""
    before = [made for view in views if (made := _before(step, view)) is not None]
    if step.site is None or not before or any(view.dropped for view in views):
        return False
    sites = Counter(each.site for each in _steps(wait, views[wait.rank]))
    return any(
        site is not None and _follows_in_a_loop(step.site, site) and all(count > made[site] for made in before)
        for site, count in sites.items()
    )


def _before(step: Step, view: LedgerView) -> Counter[Site | None] | None:
    """How often a rank had been where when it came to the call, which may be one of a store; None if it has not."""
    counts = Counter[Site | None]()
    kinds = Kind.COLLECTIVE, step.kind
    for record in view.where(lambda kind, state: kind in kinds):
        each = record.step
        if (each.target, each.sequence) == (step.target, step.sequence):
            return counts
        counts[each.site] += 1
    return None


def _follows_in_a_loop(site: Site, other: Site) -> bool:
    """Whether each round of a loop that comes to `site` comes to `other` behind it, once: so they can be counted."""
    at, at_other = from_one_function(site, other)
    in_each = comes_to_both(at, at_other) and share_a_loop(at, at_other)
    return in_each and not loops_below(at_other, other) and not made_later_too(at, at_other)


def _made_instead(step: Step, made: Mapping[int, Step], outside: Wait) -> bool:
    """Whether the one rank that made it should have met what `outside` waits for, and by the source never will."""
    ((rank, call), *more) = made.items()
    message = outside.record.step
    halves = {"recv", "irecv"} if message.op == SEND else {"send", "isend"}
    if more or outside.missing != (rank,) or call.site is None or in_any_loop(call.site):
        return False
    return not comes_later(halves | {BATCH}, call.site)


def _extra(
    outside: Wait, made: Mapping[int, Step], step: Step, missing: int, views: Sequence[LedgerView]
) -> Finding | None:
    """That few made the call, and whoever waits for a message has not made such a one, and has none before it."""
    here = outside.record.step.site
    assert step.site is not None
    assert here is not None
    order = order_of(here, step.site)
    before = {each.site for each in _steps(outside, views[outside.rank])}
    if order is Order.APART or step.site in before or len(made) >= missing or not share_a_loop(here, step.site):
        return None
    if order is not Order.BEFORE or comes_later({_public(step)}, here):
        return None
    return _told(FindingKind.EXTRA, tuple(made), made, step, outside)


def _on_top(made: Mapping[int, Step], past: int, step: Step, outside: Wait, views: Sequence[LedgerView]) -> Finding:
    """That those in the call made one more than rank `past`, which makes no more of them."""
    ranks = tuple(sorted(made))
    found = on_top(step, views[ranks[0]], views[past])
    told = _told(FindingKind.EXTRA, ranks, made, step, outside)
    first = origin(ranks, found, views[ranks[0]])
    return replace(told, step=named(found.call), sides=(first, *told.sides[1:]))


def _steps(wait: Wait, view: LedgerView) -> list[Step]:
    """What the rank called up to where it waits, messages too; of a store, if it waits for a key."""
    kinds = Kind.COLLECTIVE, wait.record.step.kind
    records = view.where(lambda kind, state: kind in kinds)
    return [record.step for record in records if record.index <= wait.record.index]


def _public(step: Step) -> str:
    return (step.site.via if step.site is not None else "") or step.op


def _told(kind: FindingKind, culprits: tuple[int, ...], made: Mapping[int, Step], step: Step, outside: Wait) -> Finding:
    one = len(culprits) == 1
    enters = side_of(
        list(made), f"{'enters' if len(made) == 1 else 'enter'} {step.call}", [call.site for call in made.values()]
    )
    awaited = outside.record.step
    waiting = words.waits(outside.record) if awaited.kind is not Kind.STORE else f"waits for the key {awaited.target!r}"
    waits = side_of([outside.rank], waiting, [awaited.site])
    sides: list[Side] = [enters, waits]
    if kind is FindingKind.MISSING and culprits:
        did = f"{'leaves' if one else 'leave'} out {step.call}"
        sides.insert(0, side_of(culprits, did, [step.site] * len(culprits)))
    elif kind is FindingKind.EXTRA:
        did = f"{'makes' if one else 'make'} one call more, {step.call}"
        sides[0] = side_of(culprits, did, [call.site for call in made.values()])
    return Finding(kind, step.call, "", tuple(sides), culprits, step.target, step.sequence)
