"""Ranks that wait in a collective for one that waits for a message: has it gone past their call, or will it come?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.sequences import calls_on, left_out_by_custom
from rankdrill.diagnosis.calls.source import Order, comes_later, made_later_too, order_of, share_a_loop
from rankdrill.diagnosis.calls.unmatched import on_top, origin
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import GROUP_OP, LedgerView
from rankdrill.step import Kind, Site, Step

__all__ = ["gone_past", "is_behind", "lie_behind"]


def gone_past(
    inside: Wait, outside: Wait, lost: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where `outside` waits for a message, and will not come to the call that `inside` waits in.

    None where it may come. `lost` are all that wait for ever. The fewer are at fault: those that went past the call
    have left it out, or those that are in it have made one more; what a rank did in the rounds before says more. Who is
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
            return _on_top(made, past[0], step, outside, views)
        return _extra(outside, made, step, len(inside.missing), views)
    further_on = [rank for rank, call in made.items() if lie_behind(call.site, step.site, here)]
    mine = {rank: call for rank, call in made.items() if rank not in further_on}
    if len(past) + len(further_on) > len(mine) and not by_custom:
        return _told(FindingKind.EXTRA, tuple(mine), mine, step, outside)
    culprits = tuple(past) if by_custom or len(past) + len(further_on) < len(mine) else ()
    return _told(FindingKind.MISSING, culprits, made, step, outside)


def lie_behind(site: Site | None, *others: Site | None) -> bool:
    """Whether it lies behind all `others` in the source."""
    return site is not None and all(other is not None and order_of(other, site) is Order.AFTER for other in others)


def _by_custom(step: Step, wait: Wait, view: LedgerView) -> bool:
    """Whether the rank used to make the call before it came to where it waits now."""
    return left_out_by_custom([step], _steps(wait, view)) is not None


def is_behind(step: Step, wait: Wait, views: Sequence[LedgerView]) -> bool:
    """Whether the rank waits behind the call: in the source, and not since it has come round a loop."""
    here = wait.record.step.site
    if (
        here is None
        or step.site is None
        or order_of(step.site, here) is not Order.AFTER
        or made_later_too(step.site, here)
    ):
        return False
    sites = {each.site for each in _steps(wait, views[wait.rank])[:-1]}
    return not share_a_loop(step.site, here) or sites.isdisjoint({step.site, here})


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
    """What the rank called up to where it waits, messages too."""
    records = view.where(lambda kind, state: kind is Kind.COLLECTIVE)
    return [record.step for record in records if record.step.op != GROUP_OP and record.index <= wait.record.index]


def _public(step: Step) -> str:
    return (step.site.via if step.site is not None else "") or step.op


def _told(kind: FindingKind, culprits: tuple[int, ...], made: Mapping[int, Step], step: Step, outside: Wait) -> Finding:
    one = len(culprits) == 1
    enters = side_of(
        list(made), f"{'enters' if len(made) == 1 else 'enter'} {step.call}", [call.site for call in made.values()]
    )
    waits = side_of([outside.rank], words.waits(outside.record), [outside.record.step.site])
    sides: list[Side] = [enters, waits]
    if kind is FindingKind.MISSING and culprits:
        did = f"{'leaves' if one else 'leave'} out {step.call}"
        sides.insert(0, side_of(culprits, did, [step.site] * len(culprits)))
    elif kind is FindingKind.EXTRA:
        did = f"{'makes' if one else 'make'} one call more, {step.call}"
        sides[0] = side_of(culprits, did, [call.site for call in made.values()])
    return Finding(kind, step.call, "", tuple(sides), culprits, step.target, step.sequence)
