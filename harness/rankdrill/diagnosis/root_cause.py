"""One root cause: what is wrong with a whole run, where one finding can say it; what explains most is asked first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.asynchronous import lost_message, stalled_by_loss
from rankdrill.diagnosis.calls.axes import divided_at_a_turn, on_another_axis
from rankdrill.diagnosis.calls.conditions import with_condition
from rankdrill.diagnosis.calls.crossed import crossed_groups
from rankdrill.diagnosis.calls.early_to_a_group import early_to_a_group
from rankdrill.diagnosis.calls.group_names import named_apart
from rankdrill.diagnosis.calls.groups_left_out import group_left_out, makes_group
from rankdrill.diagnosis.calls.joined import not_shadowed
from rankdrill.diagnosis.calls.met_by_mistake import either_turned_round
from rankdrill.diagnosis.calls.mismatched import retold, sided_with
from rankdrill.diagnosis.calls.passed import kept_away
from rankdrill.diagnosis.calls.siblings import miscounted_beside, sided_by_siblings
from rankdrill.diagnosis.calls.split_alike import with_groups_alike
from rankdrill.diagnosis.calls.torch_threads import beside_torch, met_by_chance
from rankdrill.diagnosis.calls.turns import alone_at_a_turn, another_group_at_a_turn
from rankdrill.diagnosis.calls.unmatched import left_behind
from rankdrill.diagnosis.calls.wrong_group import against_custom, made_elsewhere, strayed, wrong_group
from rankdrill.diagnosis.deadlock import circle_in, deadlock, in_circles_alike, in_every_circle
from rankdrill.diagnosis.finding import Finding, FindingKind
from rankdrill.diagnosis.groups import finding_by_members
from rankdrill.diagnosis.messages.sent_to_anybody import short_of_anybody
from rankdrill.diagnosis.messages.unmatched import one_too_many, sent_astray, to_another, unmatched_message
from rankdrill.diagnosis.mixed_circle import mixed_circle
from rankdrill.diagnosis.races.race import answer_to_another, waits_for_what_came_first
from rankdrill.diagnosis.races.shown import race_shown_by
from rankdrill.diagnosis.stores.cause import apart, cause_apart
from rankdrill.diagnosis.through_libraries import as_recorded, seen_through_libraries
from rankdrill.diagnosis.waits import Wait, hopeless
from rankdrill.ledger import LedgerView, State
from rankdrill.step import NO_SEQUENCE, Kind, Site

__all__ = ["cause_of_hang", "traced_back"]

_OF_TURNS = frozenset({FindingKind.CALL_ORDERING, FindingKind.DEADLOCK})


def cause_of_hang(waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]) -> Finding | None:
    """Why ranks wait for ever; None where that cannot be said in one finding.

    `waits` is what each waiting rank waits for, `returned` are those that came to their end, `views` the ledgers of
    all ranks.
    """
    return seen_through_libraries(
        _cause_of_hang(waits, returned, views), waits, views, lambda whole, led: _cause_of_hang(whole, returned, led)
    )


def _cause_of_hang(waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]) -> Finding | None:
    # One that has issued a message, and is in no step, may be anywhere.
    inside = {rank: wait for rank, wait in waits.items() if wait.record.state.open}
    found = named_apart(inside) or cause_apart(inside, returned, views)
    if found is not None:
        return found
    early = early_to_a_group(inside, returned, views)
    found = with_condition(early, views) if early is not None else group_left_out(inside, returned)
    if found is not None:
        return found
    waits = {rank: wait for rank, wait in waits.items() if not makes_group(wait)}
    inside = {rank: wait for rank, wait in inside.items() if not makes_group(wait)}
    # Who waits for a key or a lock would come, if those came that it waits for.
    waits = {rank: wait for rank, wait in waits.items() if not apart(wait)}
    inside = {rank: wait for rank, wait in inside.items() if not apart(wait)}
    lost = hopeless(inside, set(range(len(views))) - inside.keys() - set(returned))
    circle = [lost[rank] for rank in circle_in(lost)]
    if circle and all(wait.queued for wait in circle):
        return deadlock(circle, in_every_circle(circle, lost), in_circles_alike(circle, lost))
    found = (
        answer_to_another(inside, dict(enumerate(views)))
        or waits_for_what_came_first(lost, dict(enumerate(views)))
        or short_of_anybody(lost, views)
        or lost_message(waits, views)
        or stalled_by_loss(inside, views)
        or sent_astray(lost, dict(enumerate(views)))
        or alone_at_a_turn(lost, views)
        or _of_circle(circle, lost, returned, views)
        or (unmatched_message(inside, dict(enumerate(views)), returned) if inside else None)
        or _of_groups(waits, returned, views)
        or left_behind(waits, returned, views)
        or (made_elsewhere(waits, views) if circle else None)
        or (deadlock(circle, in_every_circle(circle, lost), in_circles_alike(circle, lost)) if circle else None)
    )
    if found is None:
        return None
    found = with_groups_alike(strayed(found, views), inside, returned)
    return finding_by_members(with_condition(found, views), views)


def _of_circle(
    circle: Sequence[Wait], lost: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What `mixed_circle` says; where that accuses nobody, how many messages there were may say more, and to whom."""
    found = mixed_circle(circle, lost, returned, views)
    if not circle or (found is not None and (found.culprits or found.kind not in _OF_TURNS)):
        return found
    by_traffic = one_too_many(lost, dict(enumerate(views)))
    if by_traffic is None and found is not None:
        by_traffic = to_another(lost, dict(enumerate(views)), returned)
    return by_traffic or found


def _of_groups(waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]) -> Finding | None:
    found = another_group_at_a_turn(waits, views)
    if found is None and (divided := divided_at_a_turn(waits, returned, views)) is not None:
        return divided
    found = (
        found
        or kept_away(waits, views)
        or _of_two_groups(waits, returned, views)
        or on_another_axis(waits, returned, views)
    )
    custom = against_custom(waits, views)
    if custom is not None and (found is None or found.culprits in ((), custom.culprits)):
        return custom  # how two threads of it came to wait is chance
    if found is not None and found.culprits:
        return found
    beside = miscounted_beside(waits, returned, views)
    if found is not None and beside is not None and beside.kind is FindingKind.MISSING and _turned_round(found):
        return found
    return beside or found


def _turned_round(found: Finding) -> bool:
    """Whether it tells two orders of two calls, as the source has them: then neither was left out."""
    return found.kind is FindingKind.CALL_ORDERING and either_turned_round(found)


def _of_two_groups(waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]) -> Finding | None:
    crossed = crossed_groups(waits, views, returned)
    if crossed is not None and crossed.kind is FindingKind.EXTRA:
        by_group = wrong_group(waits, views, None)
        if by_group is not None and by_group.culprits == crossed.culprits:
            return by_group  # on the group that it should have taken, it would be none too many
    if crossed is not None and not crossed.culprits:
        by_group = wrong_group(waits, views, None)
        if by_group is not None and by_group.culprits:
            return against_custom(waits, views) or by_group
        return against_custom(waits, views) or made_elsewhere(waits, views) or crossed
    return crossed or wrong_group(waits, views, None)


def traced_back(noticed: Finding, waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding:
    """`noticed`, which a rank found while it ran, as it looks to who knows what all ranks did."""
    views = [_until(noticed, rank, view) for rank, view in enumerate(views)]
    waits = {rank: wait for rank, wait in waits.items() if wait.record.index < _end(views[rank])}
    found = seen_through_libraries(
        _traced_back(as_recorded(noticed, views, views), waits, views),
        waits,
        views,
        lambda whole, led: _traced_back(as_recorded(noticed, views, led), whole, led),
    )
    assert found is not None, "as the first look finds something"
    return found


def _traced_back(noticed: Finding, waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding:
    if (race := race_shown_by(noticed, views)) is not None:
        return race
    if noticed.number != NO_SEQUENCE and (beside := beside_torch(dict(enumerate(views)), noticed.group)) is not None:
        return beside
    if (beside_join := not_shadowed(noticed, views)) is not None:
        return finding_by_members(beside_join, views)
    found = wrong_group(waits, views, noticed) if noticed.number != NO_SEQUENCE else None
    if found is None or noticed.culprits not in ((), found.culprits):
        found = strayed(retold(sided_by_siblings(sided_with(noticed, waits, views), views), views), views)
        found = met_by_chance(found)
    return finding_by_members(with_condition(found, views), views)


def _until(noticed: Finding, rank: int, view: LedgerView) -> LedgerView:
    """`view` up to where the rank was told: what `finally` calls then gets the number of the call that was refused."""
    told = (pair for side in noticed.sides for pair in zip(side.ranks, side.sites, strict=True))
    places = {_place(site) for each, site in told if each == rank}
    refused = (
        record.index
        for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE and state is State.RAISED)
        if (record.step.target, record.step.sequence) == (noticed.group, noticed.number)
        and _place(record.step.site) in places
    )
    last = next(refused, None)
    return view if last is None else replace(view, raw=view.raw[: last + 1 - view.first])


def _place(site: Site | None) -> tuple[str, int] | None:
    """The line alone: of its callers a post tells fewer than the ledger, where they are many."""
    return site.place if site is not None else None


def _end(view: LedgerView) -> int:
    return view.first + len(view.raw)
