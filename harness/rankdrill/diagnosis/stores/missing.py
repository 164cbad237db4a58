"""A key that ranks wait for and nobody sets: who was to set it, or who waits for a wrong one.

A rank is blamed where most of the others did something else: where each sets a key of its own number but one, or of
numbers that follow from its own; where all have counted themselves but one; where one sets them one after the
other and has left this one out; where one alone sets a key that differs in its spelling, and that nobody gets; where
ranks set and await a key like it; where by the source one alone could have set it, and has gone past that line; where
one has deleted it before several others got it; where one has only swapped a value that it never had.
Otherwise nobody can say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankdrill.diagnosis.calls.by_rank import may_come
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.stores.by_custom import (
    asks_as_others,
    asks_in_a_branch_of_its_own,
    asks_turned_round,
    asks_unlike_the_others,
    set_in_vain,
    set_once_more,
    set_unlike_the_others,
)
from rankdrill.diagnosis.stores.by_turn import set_before_it_went_on, set_before_its_turn_passed
from rankdrill.diagnosis.stores.calls import StoreCalls
from rankdrill.diagnosis.stores.keys import awaits_key
from rankdrill.diagnosis.stores.numbered import (
    asks_for_none_that_was_drawn,
    counted_itself,
    has_drawn_it,
    who_did_not,
    who_kept_it,
    who_left_a_gap,
    who_set_one_too_few,
    who_sets_for_each,
)
from rankdrill.diagnosis.stores.other_name import (
    asks_in_another_form,
    asks_under_a_prefix_twice,
    misspelt_by,
    set_at_their_line,
    set_for_nobody,
    set_turned_round,
    set_under_a_prefix_twice,
    turned_round_by_one,
    waiting_for_such,
)
from rankdrill.diagnosis.stores.own_keys import asks_past_them_all, goes_past_its_own, whose_own
from rankdrill.diagnosis.stores.setters import Setter, gone_by, only_setter
from rankdrill.diagnosis.stores.spelling import words_of
from rankdrill.diagnosis.stores.told import gone_by_side, passed_side, set_so, sides_of, swap_side
from rankdrill.diagnosis.stores.undone import deleted_early, swapped
from rankdrill.diagnosis.stores.uses import Use, alike, uses_of
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import Site, Step
from rankdrill.whose import Whose, whose_file

__all__ = ["missing_key"]


def missing_key(beside: Mapping[int, Wait], lost: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where the ranks `beside` wait for keys for ever, and `lost` are all that wait for ever.

    None where they wait for locks alone: whoever holds one has ended.
    """
    by_key: dict[str, list[int]] = {}
    for rank, wait in beside.items():
        if awaits_key(wait.record.step):
            by_key.setdefault(wait.record.step.target, []).append(rank)
    if not by_key:
        return None
    uses = uses_of(views)
    every = sorted(
        by_key, key=lambda key: (-len(by_key[key]), min(beside[rank].record.begin_ns for rank in by_key[key]))
    )
    calls = StoreCalls(views)
    key = _first_of(every[0], by_key, beside, views)
    rest = [other for other in every if other != key]

    def nobody_sets(key: str) -> Finding:
        return _nobody_sets(_Missing(key, sorted(by_key[key]), beside, lost, uses, views, calls))

    found = nobody_sets(key)
    if found.culprits != tuple(sorted(by_key[key])):
        return found
    line = beside[found.culprits[0]].record.step.site
    same_line = [other for other in rest if {beside[rank].record.step.site for rank in by_key[other]} == {line}]
    told = [nobody_sets(other) for other in same_line]
    as_wrong = [
        each for other, each in zip(same_line, told, strict=True) if each.culprits == tuple(sorted(by_key[other]))
    ]
    return _together([found, *as_wrong]) if line is not None else found


def _first_of(
    key: str, by_key: Mapping[str, Sequence[int]], beside: Mapping[int, Wait], views: Sequence[LedgerView]
) -> str:
    """`key`, or the one that its only setter waits for before it comes to set it, and so on."""
    if len(by_key) < 2:
        return key
    sites, seen = _all_sites(views), {key}
    while (setter := only_setter(key, sites, len(views))) is not None and setter.rank in beside:
        step = beside[setter.rank].record.step
        if step.target not in by_key or step.target in seen or gone_by(setter, step.site):
            break
        key = step.target
        seen.add(key)
    return key


def _together(found: Sequence[Finding]) -> Finding:
    """Of ranks that ask for wrong keys at one line: what each did, and then what else is said of the first."""
    first, *more = found
    sides = (first.sides[0], *(each.sides[0] for each in more), *first.sides[1:])
    return replace(first, sides=sides, culprits=tuple(sorted(rank for each in found for rank in each.culprits)))


@dataclass(frozen=True)
class _Missing:
    """A `key` that the ranks `waiters` wait for, of those that wait `beside`, and all `lost`; what they did to keys."""

    key: str
    waiters: Sequence[int]
    beside: Mapping[int, Wait]
    lost: Mapping[int, Wait]
    uses: Sequence[Use]
    views: Sequence[LedgerView]
    calls: StoreCalls

    @property
    def wait(self) -> Wait:
        return self.beside[self.waiters[0]]

    @property
    def awaited(self) -> Step:
        return self.wait.record.step

    def finding(self, culprits: Sequence[int], first: Side | None = None) -> Finding:
        blamed = tuple(culprits)
        sides = sides_of(self.key, self.waiters, blamed, self.beside, self.lost, self.uses, self.views)
        sides = (first, *sides[1:]) if first is not None else sides
        return Finding(FindingKind.MISSING_KEY, f"key {self.key!r}", "key", sides, blamed)

    def set_wrongly(self, use: Use) -> Finding:
        """Its rank has set that, and not the key."""
        return self.finding((use.rank,), set_so(use, self.key, self.uses))


def _nobody_sets(case: _Missing) -> Finding:
    # Whoever counts last sets the key: that it had a rank's number, each time but once, was chance.
    counted = _who_did_not_count(case.waiters, case.beside, case.uses, len(case.views))
    return (
        _said_twice(case)
        or _gone_by_its_line(case)
        or _unlike_the_others(case, counted is not None)
        or _asked_wrongly(case)
        or _told_by_name_or_number(case, counted)
        or _not_done(case)
        or _set_another_there(case)
        or _gone_by_its_line(case, kept_away=True)
        or case.finding(())
    )


def _said_twice(case: _Missing) -> Finding | None:
    if asks_under_a_prefix_twice(case.awaited, case.waiters, case.uses):
        return case.finding(case.waiters)
    twice = set_under_a_prefix_twice(case.awaited, case.uses, case.views)
    return case.set_wrongly(twice) if twice is not None else None


def _unlike_the_others(case: _Missing, counted: bool) -> Finding | None:
    alone = [rank for rank in case.waiters if asks_unlike_the_others(case.beside[rank], case.calls)]
    if len(alone) == 1:
        return case.finding(alone)
    astray = set_unlike_the_others(case.key, case.calls) if not counted else None
    astray = astray or set_once_more(case.key, case.calls)
    return case.set_wrongly(Use(*astray)) if astray is not None else None


def _asked_wrongly(case: _Missing) -> Finding | None:
    if len(case.waiters) != 1:
        return None
    (waiter,) = case.waiters
    wrongly = (
        asks_turned_round(case.key, case.waiters, case.calls)
        or asks_in_a_branch_of_its_own(case.wait, case.calls)
        or asks_in_another_form(case.awaited, case.uses, case.views)
        or goes_past_its_own(case.awaited, waiter, case.uses) is not None
        or asks_past_them_all(case.key, waiter, case.uses)
        or counted_itself(case.wait, case.uses)
        or asks_for_none_that_was_drawn(case.wait, case.uses)
    )
    return case.finding(case.waiters) if wrongly else None


def _told_by_name_or_number(case: _Missing, counted: tuple[int, ...] | None) -> Finding | None:
    key, waiters, uses, views = case.key, case.waiters, case.uses, case.views
    culprits = counted if counted is not None else _by_numbers(key, waiters, case.beside, uses, views)
    misspelt = _misspelt(case, culprits)
    if counted and misspelt is not None and _others_have_set(misspelt, uses):
        misspelt = None
    if misspelt is not None and (not culprits or culprits == (misspelt.rank,)):
        return case.set_wrongly(misspelt)
    if culprits:
        return case.finding(culprits)
    if (deleted := deleted_early(case.wait, waiters, uses, views)) is not None:
        rank, record = deleted
        did = f"has deleted {key!r}, which others had still to get"
        return case.finding((rank,), side_of([rank], did, [record.step.site]))
    if (vain := set_in_vain(key, waiters, case.lost, case.calls)) is not None:
        return case.set_wrongly(Use(*vain))
    outvoted = _outvoted(case.awaited, waiters, uses) if culprits is None else ()
    if outvoted == tuple(waiters) and all(asks_as_others(case.beside[rank], case.calls) for rank in waiters):
        return None
    return case.finding(outvoted) if outvoted else None


def _others_have_set(use: Use, uses: Sequence[Use]) -> bool:
    digest = use.record.step.digest
    return any(each.sets and each.rank != use.rank and each.record.step.digest == digest for each in uses)


def _misspelt(case: _Missing, culprits: tuple[int, ...] | None) -> Use | None:
    """What was set under a wrong name, where `culprits` are to blame as far as numbers tell."""
    awaited, uses, views = case.awaited, case.uses, case.views
    misspelt = misspelt_by(awaited, waiting_for_such(awaited, case.lost), uses, views)
    if misspelt is None and culprits and len(culprits) == 1:
        misspelt = set_turned_round(awaited, culprits[0], uses, views)
    if misspelt is None and not culprits and len(case.waiters) > 1:
        misspelt = turned_round_by_one(awaited, uses, views)
    if misspelt is None and culprits and len(culprits) == 1:
        misspelt = set_for_nobody(case.key, culprits[0], uses, views)
    if misspelt is None and culprits and not set(case.waiters) <= set(culprits):  # of who alone waits, the key is wrong
        misspelt = set_at_their_line(case.key, culprits[0], uses, views)
    return misspelt


def _not_done(case: _Missing) -> Finding | None:
    """Where one was to set it, and did something else."""
    if (swap := swapped(case.awaited, case.waiters, case.uses, case.views)) is not None:
        return case.finding((swap[0],), swap_side(*swap))
    if (passed := _passed(case.key, case.waiters, case.lost, case.views)) is not None:
        rank, before = passed
        return case.finding((rank,), passed_side(rank, before, case.key, case.lost[rank]))
    return None


def _gone_by_its_line(case: _Missing, *, kept_away: bool = False) -> Finding | None:
    """Where one line alone sets it, one rank alone may come there, and that has gone past it."""
    setter = _setter_gone_by(case.key, case.waiters, case.lost, case.views, kept_away=kept_away)
    return case.finding((setter.rank,), gone_by_side(setter, case.key, case.lost)) if setter is not None else None


def _set_another_there(case: _Missing) -> Finding | None:
    """Where one line alone sets it, one rank alone may come there, and has set another one there, that nobody gets."""
    setter = only_setter(case.key, _all_sites(case.views), len(case.views))
    if setter is None:
        return None
    sets = ((use, use.record.step.site) for use in case.uses if use.sets)
    there = [use for use, site in sets if site is not None and site.place == setter.site.place]
    if len(there) != 1 or there[0].rank != setter.rank or there[0].key in case.calls.looked_for:
        return None
    return case.set_wrongly(there[0])


def _passed(
    key: str, waiters: Sequence[int], lost: Mapping[int, Wait], views: Sequence[LedgerView]
) -> tuple[int, Record] | None:
    """The one rank that sets such a key at each turn, and has come past that of this one, with where it did before."""
    others = {rank: wait for rank, wait in lost.items() if rank not in waiters}
    passed = (
        (rank, set_before_its_turn_passed(key, wait, views[rank]) or set_before_it_went_on(key, rank, lost, views))
        for rank, wait in others.items()
    )
    found = [(rank, before) for rank, before in passed if before is not None]
    return found[0] if len(found) == 1 else None


def _by_numbers(
    key: str, waiters: Sequence[int], beside: Mapping[int, Wait], uses: Sequence[Use], views: Sequence[LedgerView]
) -> tuple[int, ...] | None:
    """Who is at fault as the numbers say that are in keys; nobody, if these say that nobody is; None if nothing."""
    own = whose_own(key, uses, len(views))
    if own is not None:
        return (own,)
    found = who_kept_it(key, waiters, uses)
    # A number that was drawn from a counter is no rank's.
    if found is None and not has_drawn_it(beside[waiters[0]], uses):
        found = who_did_not(key, waiters, uses, len(views))
    if found is None:
        found = who_left_a_gap(key, waiters, uses, len(views))
    if found is None:
        found = who_sets_for_each(key, waiters, uses)
    if found is None and len(waiters) == 1:
        found = who_set_one_too_few(key, beside[waiters[0]], uses, views)
    return found


def _who_did_not_count(
    waiters: Sequence[int], beside: Mapping[int, Wait], uses: Sequence[Use], size: int
) -> tuple[int, ...] | None:
    """Where all that wait have added to one counter, the last thing that they set, who has not, if those are fewer;
    and the one that waits and has not, where all others have.
    """
    last = {use.rank: use.record.step for use in uses if _sets_before(use, beside) and use.rank in waiters}
    counters = Counter(step.digest for step in last.values() if step.op == "add")
    if not counters:
        return None
    counter, _ = counters.most_common(1)[0]
    counted = {rank for rank, step in last.items() if step.op == "add" and step.digest == counter}
    came = {use.rank for use in uses if use.record.step.op == "add" and use.record.step.digest == counter}
    without = tuple(rank for rank in range(size) if rank not in came)
    if not without or came != counted or len(without) >= len(came):
        return None
    return without if counted == set(waiters) or len(without) == 1 else None


def _sets_before(use: Use, beside: Mapping[int, Wait]) -> bool:
    return use.sets and use.rank in beside and use.record.index < beside[use.rank].record.index


def _outvoted(awaited: Step, waiters: Sequence[int], uses: Sequence[Use]) -> tuple[int, ...]:
    """Those that wait, where others set and await a key like theirs; the one that sets such, where several wait."""
    others = [use for use in uses if use.rank not in waiters]
    alike_to_it = {use.key for use in others if alike(awaited, use)}
    set_so = {words_of(use.key) for use in others if use.sets and use.key in alike_to_it}
    # And those that are got like the one that was set for who waits.
    like = [use for use in others if use.key in alike_to_it or words_of(use.key) in set_so]
    users, setters = {use.rank for use in like}, {use.rank for use in like if use.sets}
    agree = any(_is_awaited_by_another(use, like) for use in like if use.sets)
    if agree and len(waiters) < len(users):
        return tuple(waiters)
    if len(waiters) > 1 and len(setters) == 1 and users == setters:
        return tuple(setters)
    return ()


def _setter_gone_by(
    key: str, waiters: Sequence[int], lost: Mapping[int, Wait], views: Sequence[LedgerView], *, kept_away: bool
) -> Setter | None:
    """The one line that sets the key, which one rank alone could have come to, if that has not, and will not any more.

    Nobody can say where another rank may have got along without the key.
    """
    sites = _all_sites(views)
    setter = only_setter(key, sites, len(views), kept_away=kept_away)
    if setter is None or setter.rank in waiters or _ended_that_may_wait(waiters, lost, len(views)) - {setter.rank}:
        return None
    there = _sites_in(views[setter.rank]) if setter.own else sites
    if any(view.dropped for view in views) or setter.site.place in {site.place for site in there}:
        return None  # it may set several, one after the other
    wait = lost.get(setter.rank)
    return setter if wait is None or gone_by(setter, wait.record.step.site) else None


def _ended_that_may_wait(waiters: Sequence[int], lost: Mapping[int, Wait], size: int) -> set[int]:
    """The ranks that have come to their end, and by the source may have come to a line where the key is waited for."""
    ended = {rank for rank in range(size) if rank not in lost}
    sites = {lost[rank].record.step.site for rank in waiters}
    return {rank for site in sites for rank in ended if site is None or rank in may_come(site, range(size), size)}


def _all_sites(views: Sequence[LedgerView]) -> set[Site]:
    return {site for view in views for site in _sites_in(view)}


def _sites_in(view: LedgerView) -> Iterator[Site]:
    for site in {id(record.step.site): record.step.site for record in view.records}.values():
        outer = site
        while outer is not None:
            if whose_file(outer.file) is Whose.USER:
                yield outer
            outer = outer.caller


def _is_awaited_by_another(set_: Use, uses: Sequence[Use]) -> bool:
    digest = set_.record.step.digest
    return any(use.rank != set_.rank and use.record.step.digest == digest and not use.sets for use in uses)
