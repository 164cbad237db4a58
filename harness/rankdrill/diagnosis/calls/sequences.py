"""What ranks called on one group, one call after another, and where the sequence of one rank parts from the others'.

A rank that leaves a call out goes on as if nothing had happened: its next call meets the others' call that it left
out, and where the two look alike it goes unnoticed until much later. So the two sequences are laid side by side, once
as they are, once with each call left out of one of them: the place where everything behind it fits again is where they
parted. Call sites are what tells most; that they differ is no finding by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile

from rankdrill.diagnosis.calls.common_caller import (
    come_round,
    comes_round_without,
    from_one_function,
    in_turn_by_one_line,
    loops_below,
    only_some_come,
)
from rankdrill.diagnosis.calls.conditions import chooses_between, may_be_left_out
from rankdrill.diagnosis.calls.each_time import left_out_each_time
from rankdrill.diagnosis.calls.loops import comes_round_alone, fixed_rounds_without, is_for_some_rounds
from rankdrill.diagnosis.calls.source import Order, comes_later, is_handled_by, made_later_too, order_of
from rankdrill.diagnosis.calls.tree import STRAIGHT, paths_of, shared
from rankdrill.diagnosis.calls.wholes import Wholes
from rankdrill.diagnosis.finding import FindingKind
from rankdrill.ledger import LedgerView
from rankdrill.site import outward
from rankdrill.step import DDP_BUCKET, NO_SEQUENCE, Kind, Site, Step

__all__ = ["Parting", "calls_on", "left_out_by_custom", "left_out_by_one_side", "parted_before", "parting"]

ANOTHER_OP = 4  # how little two calls are alike: this, if they are different collectives
ANOTHER_CALL = 3  # if tensors, root or reduce op differ
ANOTHER_SITE = 1
FEWEST_ROUNDS = 2  # of a loop that is not thought to have none
_ROOT = "root="


@dataclass(frozen=True, slots=True)
class Parting:
    """That a rank left `call` out (`MISSING`), or made it on top of what the others made (`EXTRA`).

    `times` says how often: with it that many from the same line.
    """

    kind: FindingKind
    call: Step
    times: int = 1


def calls_on(group: str, view: LedgerView) -> dict[int, Step]:
    """The collectives of one rank on `group` by their number. One that was refused gave its number to the next."""
    found: dict[int, Step] = {}
    for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
        step = record.step
        if step.target == group and step.sequence != NO_SEQUENCE:
            found[step.sequence] = step
    return found


def parting(theirs: Sequence[Step], mine: Sequence[Step], *, complete: bool, by_source: bool = True) -> Parting | None:
    """Where `mine`, the calls of one rank, part from `theirs`, those of a rank that did as most; None if unknown.

    Both begin with the same call. `complete` says that nothing follows in the shorter one; else both end at the call
    where it showed, and what would have followed is not known. `by_source` says that the files of the call sites are
    the program's, and may be read.
    """
    if complete:
        kind = FindingKind.MISSING if len(mine) < len(theirs) else FindingKind.EXTRA
        longer, shorter = (theirs, mine) if kind is FindingKind.MISSING else (mine, theirs)
        again = left_out_each_time(longer, shorter)
        if again:
            return Parting(kind, longer[again[0]], len(again))
        return Parting(kind, longer[_left_out(longer, shorter)]) if len(longer) > len(shorter) else None
    if not theirs or not mine:  # overwritten since
        return None
    theirs, mine = _up_to_where_they_met(theirs, mine)
    found = parted_before(theirs, mine)
    if found is not None or by_source:
        return found or _where_it_showed(theirs, mine)
    return left_out_by_custom(theirs, mine)


def _left_out(longer: Sequence[Step], shorter: Sequence[Step]) -> int:
    """Which call of `longer`, left out, makes both fit best; of several the last."""
    return _least(_costs(longer, shorter))


def _least(costs: Mapping[int, int]) -> int:
    """The place that costs least; of several the last."""
    return min(costs, key=lambda place: (costs[place], -place))


def _costs(longer: Sequence[Step], shorter: Sequence[Step]) -> dict[int, int]:
    """How badly the two fit if the call at a place of `longer` is left out, calls without a partner not counted.

    What the user called is left out as a whole: of several calls that belong to one never the one alone, if the two
    fit better.
    """
    costs = {place: before + behind for place, (before, behind) in _costs_without(longer, shorter, 1).items()}
    wholes = Wholes(longer)
    for width in wholes.widths:
        meets = min(len(longer) - width, len(shorter))  # up to here something behind it fits, or not
        for place, (before, behind) in _costs_without(longer, shorter, width).items():
            # The more is left out the less is compared: so all that is has to fit.
            if place < meets and not behind and before < costs[place] and wholes.holds(place, width):
                costs[place] = before
    return costs


def _costs_without(longer: Sequence[Step], shorter: Sequence[Step], width: int) -> dict[int, tuple[int, int]]:
    """How badly they fit before each place, and behind it with so many calls left out there."""
    straight = [_unlike(one, other) for one, other in zip(longer, shorter, strict=False)]
    shifted = [_unlike(one, other) for one, other in zip(longer[width:], shorter, strict=False)]
    before = list(accumulate(straight, initial=0))
    behind = list(accumulate(reversed(shifted), initial=0))[::-1]
    places = range(min(len(longer), len(before)))
    return {place: (before[place], behind[min(place, len(shifted))]) for place in places}


def _unlike(one: Step, other: Step) -> int:
    if one.op != other.op or one.target != other.target:
        return ANOTHER_OP
    return ANOTHER_CALL * (one.digest != other.digest) + ANOTHER_SITE * (one.site != other.site)


def parted_before(theirs: Sequence[Step], mine: Sequence[Step]) -> Parting | None:
    """The parting, if it came before the call where it showed: what lies between fits only with one call left out."""
    straight = sum(_unlike(one, other) for one, other in zip(theirs[:-1], mine[:-1], strict=False))
    best: tuple[int, Parting] | None = None
    for kind, longer, shorter in ((FindingKind.MISSING, theirs, mine), (FindingKind.EXTRA, mine, theirs)):
        costs = _costs(longer, shorter)
        place = _least(costs) if costs else None
        if place is not None and costs[place] < (straight if best is None else best[0]):
            past = kind is FindingKind.EXTRA and _came_round_past(theirs, mine, place)
            best = costs[place], Parting(FindingKind.MISSING, theirs[place]) if past else Parting(kind, longer[place])
    if best is None or best[0]:
        return _parted_each_time(theirs, mine) or (best[1] if best is not None else None)
    return best[1]


def _parted_each_time(theirs: Sequence[Step], mine: Sequence[Step]) -> Parting | None:
    """That they fit with some calls left out, all of one line: on one of the two sides."""
    left_out, on_top = left_out_each_time(theirs, mine), left_out_each_time(mine, theirs)
    if left_out and not on_top:
        return Parting(FindingKind.MISSING, theirs[left_out[0]], len(left_out))
    if on_top and not left_out:
        return Parting(FindingKind.EXTRA, mine[on_top[0]], len(on_top))
    return None


def _came_round_past(theirs: Sequence[Step], mine: Sequence[Step], place: int) -> bool:
    """Whether what looks like a call too many was the next round's: nothing but the loop leads from that line to it
    once more, and on the way lies what the others called.
    """
    if not 0 < place < len(theirs):
        return False
    due, came = theirs[place], mine[place]
    if due.site is None or came.site is None or due.site == came.site or mine[place - 1].site != came.site:
        return False
    at_due, at_came = from_one_function(due.site, came.site)
    if order_of(at_came, at_due) is not Order.AFTER or not come_round(at_due, at_came):
        return False
    before = {step.site for step in mine[:place]}
    return due.site in before and not comes_round_alone(at_due, at_came, within=loops_below(at_came, came.site))


def left_out_by_one_side(
    ranks: Sequence[tuple[int, ...]], mine: Sequence[Step], theirs: Sequence[Step]
) -> tuple[tuple[int, ...], Parting] | None:
    """Which of two sides left out what it used to call, and what: the `ranks` of both, and what one of each did up to
    where it showed. None where neither did, or both.
    """
    if not mine or not theirs:
        return None
    parted = left_out_by_custom(theirs, mine), left_out_by_custom(mine, theirs)
    told = [(those, found) for those, found in zip(ranks, parted, strict=True) if found is not None]
    return told[0] if len(told) == 1 else None


def left_out_by_custom(theirs: Sequence[Step], mine: Sequence[Step]) -> Parting | None:
    """The call that `mine` left out right where it showed, if that call has always come before `mine`'s last one.

    In each round up to `mine`'s last call, that is; or so many times in each, and not so many in this one.
    """
    due, came = theirs[-1], mine[-1]
    if due.site is None or came.site is None or due.site == came.site or _goes_on_alone(due.site, came.site, mine):
        return None
    *rounds, made = _rounds(due.site, came.site, [step.site for step in mine[:-1]])
    usual = rounds[1:] or rounds  # the first one may have begun before
    always, as_often = bool(usual) and all(usual), len(set(usual)) == 1
    return Parting(FindingKind.MISSING, due) if always and (not made or (as_often and made < usual[0])) else None


def _goes_on_alone(due: Site, came: Site, mine: Sequence[Step]) -> bool:
    """Whether who did `mine` goes round a loop of its own to `came` once more, rather than past the one that brings
    what is `due`: that has had several rounds each time before, and would have none.
    """
    last = mine[-2].site if len(mine) > 1 else None
    at_due, at_came = from_one_function(due, came)
    if not any(each.place == at_came.place for each in outward(last)):
        return False
    *rounds, made = _rounds(due, came, [step.site for step in mine[:-1]])
    if made or min(filter(None, rounds), default=0) < FEWEST_ROUNDS:
        return False
    return comes_round_alone(at_due, at_came, within=loops_below(at_came, came), past_loops=True)


def _rounds(due: Site, came: Site, history: Sequence[Site | None]) -> list[int]:
    """How many calls from `due` came before each one from `came`, since the one before; and since the last one."""
    counts = [0]
    for site in history:
        if site == came:
            counts.append(0)
        else:
            counts[-1] += site == due
    return counts


def _where_it_showed(theirs: Sequence[Step], mine: Sequence[Step]) -> Parting | None:
    """The parting at the last calls, which do not fit: by what has followed upon what, else by the source."""
    due, came = theirs[-1], mine[-1]
    if due.site is not None and due.site == came.site and _comes_next_by_custom(due, came, mine[:-1]):
        return Parting(FindingKind.MISSING, due)
    if due.site is None or came.site is None or due.site == came.site or _met_before(theirs, mine):
        return None
    before = {step.site for step in mine[:-1]}
    again = len(mine) > 1 and mine[-2].site == came.site
    at_due, at_came = from_one_function(due.site, came.site)
    alone = again and not _begins_anew(mine)
    if alone and comes_round_alone(at_due, at_came, within=loops_below(at_came, came.site)):
        return Parting(FindingKind.EXTRA, came)
    if _goes_on_alone(due.site, came.site, mine):
        return Parting(FindingKind.EXTRA, came)
    if {due.site, came.site} <= before and in_turn_by_one_line(due.site, came.site):
        return None  # each had its turn before, and one has another before it now
    by_due = next((each for each in outward(came.site.caller) if each.place == due.site.place), None)
    if by_due is not None and only_some_come(by_due, came.site):
        return Parting(FindingKind.EXTRA, came)  # in what a library that the line of the other calls has called back
    order = order_of(at_due, at_came)
    if order is Order.APART and chooses_between(at_due, at_came):
        return None  # it has taken the other way of the two, whatever came by turns before
    if by_custom := left_out_by_custom(theirs, mine):
        return by_custom
    if _still_in_its_round(theirs, mine) or (order is Order.BEFORE and _is_on_its_way(theirs, mine)):
        return Parting(FindingKind.EXTRA, came)
    if order is Order.BEFORE and not may_be_left_out(at_due) and _is_one_way(came.site, at_came):
        return Parting(FindingKind.EXTRA, came)  # nothing goes past what is due, and something past its own
    if order is not Order.APART and came.site in before and come_round(at_due, at_came):
        return Parting(FindingKind.MISSING, due)  # it has come round the loop
    if again and _met_another(theirs, mine):
        return None
    if order is Order.BEFORE and not come_round(at_due, at_came) and not made_later_too(at_came, at_due):
        return Parting(FindingKind.EXTRA, came)  # it is still behind the others, and nothing brings it back there
    if came.site in {step.site for step in theirs}:
        return None
    if order is Order.AFTER and come_round(at_due, at_came) and only_some_come(at_came, came.site):
        return Parting(FindingKind.EXTRA, came)  # the others have gone by, into the next round
    if order is Order.AFTER and due.site in before and comes_round_without(due.site, at_due, at_came):
        return Parting(FindingKind.MISSING, due)  # it has left the loop that the others are still in
    if order is Order.AFTER and not (due.site in before and come_round(at_due, at_came)):
        if made_later_too(at_due, at_came):
            return None
        return Parting(FindingKind.MISSING, due)
    if is_handled_by(at_due, at_came) and comes_later({due.op, _public(due)}, at_came):
        return Parting(FindingKind.EXTRA, came)  # who has failed calls that alone, and then what is due
    if order is None or order is Order.APART or made_later_too(at_came, at_due):
        return None
    return Parting(FindingKind.EXTRA, came)


def _is_one_way(site: Site, at: Site) -> bool:
    """Whether something goes past that call on the way to it from `at`, the line that led to it."""
    return any(may_be_left_out(each) for each in takewhile(lambda each: each.place != at.place, outward(site)))


def _comes_next_by_custom(due: Step, came: Step, history: Sequence[Step]) -> bool:
    """Whether one line has always gone on from what is `due` to what `came`, and never come to that without it."""
    made = [(step.site, step.digest) for step in history]
    mine, theirs = (came.site, came.digest), (due.site, due.digest)
    if mine == theirs:  # they differ in what each rank has of its own
        return False
    if _differ_in_reduce_op(due, came):
        return False
    before = {first for first, then in pairwise(made) if then == mine}
    behind = {then for first, then in pairwise(made) if first == theirs}
    return before == {theirs} and behind == {mine}


def _differ_in_reduce_op(one: Step, other: Step) -> bool:
    """Whether two calls are of the same tensors, and of no root, and differ in one word."""
    words, others = one.fingerprint.split(), other.fingerprint.split()
    return one.op == other.op and len(words) == len(others) == 2 and words[0] == others[0] and _ROOT not in words[1]


def _up_to_where_they_met(theirs: Sequence[Step], mine: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step]]:
    """Both up to the first call of what the user called last on either side, where these are two public functions.

    Several of those begin alike: `all_gather_object` and `gather_object` gather the sizes first.
    """
    while len(theirs) > 1 and len(mine) > 1 and _met_another(theirs, mine):
        if theirs[-2].site != theirs[-1].site or mine[-2].site != mine[-1].site:
            break
        theirs, mine = theirs[:-1], mine[:-1]
    return theirs, mine


def _begins_anew(mine: Sequence[Step]) -> bool:
    """Whether the last call is what its line began with, and not what it goes on with: it is in a new round."""
    came = mine[-1]
    in_a_row = takewhile(lambda step: step.site == came.site, reversed(mine[:-1]))
    *later, first = [step.digest for step in in_a_row] or [0]
    return came.digest == first and first not in later and bool(later)


def _met_before(theirs: Sequence[Step], mine: Sequence[Step]) -> bool:
    """Whether calls from the two lines of the last ones have fitted before: they are one call of the program."""
    pairs = list(zip(reversed(theirs), reversed(mine), strict=False))
    return any((one.site, other.site) == (theirs[-1].site, mine[-1].site) for one, other in pairs[1:])


def _is_on_its_way(theirs: Sequence[Step], mine: Sequence[Step]) -> bool:
    """Whether all made the same call before, from which one comes to its own first, and then to what is due.

    Had it come round a loop past that, it would have made the call before once more. Not where only the round tells
    whether its own is made: then all make it in that one, or it is in another.
    """
    due, came = theirs[-1].site, mine[-1].site
    if len(theirs) < 2 or len(mine) < 2 or due is None or came is None:
        return False
    last = mine[-2].site
    if last is None or last != theirs[-2].site or last.place == came.place or is_for_some_rounds(came):
        return False
    return order_of(*from_one_function(last, came)) is Order.AFTER


def _still_in_its_round(theirs: Sequence[Step], mine: Sequence[Step]) -> bool:
    """Whether the last call was on the way from what all did before, and the others have come round a loop meanwhile.

    All came from the very call that is due again, or from the backward pass behind it; its own lies behind that in the
    source, and no shorter way leads round, but for a loop that has been gone round as often as it is told to. Or all
    came from a call that lies between the two: whoever had come round to its own would have made that once more.
    """
    due, came = theirs[-1].site, mine[-1].site
    if len(theirs) < 2 or len(mine) < 2 or due is None or came is None:
        return False
    last = theirs[-2].site
    if last is None or last != mine[-2].site:
        return False
    if not (last == due or _is_a_pass_behind(due, last)):
        return _lies_between(due, last, came)
    at_due, at_came = from_one_function(due, came)
    if order_of(at_due, at_came) is not Order.AFTER or not come_round(at_due, at_came):
        return False
    if made_later_too(at_came, at_due):
        return False
    return not comes_round_without(due, at_due, at_came) or _has_gone_round(mine[:-1], due, at_due, at_came)


def _lies_between(due: Site, last: Site, came: Site) -> bool:
    """Whether a round of one loop comes to `due`, then to `last`, past which nothing leads, then to `came`."""
    pairs = from_one_function(due, last), from_one_function(last, came), from_one_function(due, came)
    if any(order_of(*pair) is not Order.AFTER or not come_round(*pair) for pair in pairs):
        return False
    (_, at_last), (again, on), (at_due, at_came) = pairs
    if again != at_last or _is_one_way(last, at_last) or made_later_too(at_came, at_due):
        return False
    paths = paths_of(at_last, on)
    return paths is not None and all(isinstance(node, STRAIGHT) for node, _ in paths[0][shared(*paths) :])


def _is_a_pass_behind(due: Site, last: Site) -> bool:
    """Whether one line trains a model: `due` is the forward pass of it, and `last` the backward pass before."""
    return (
        due.place == last.place and "forward" in due.via and (last.via.startswith(DDP_BUCKET) or "backward" in last.via)
    )


def _has_gone_round(made: Sequence[Step], due: Site, at_due: Site, at_came: Site) -> bool:
    """Whether who `made` these calls has come round the inner loop around `due` as often as that says."""
    rounds = fixed_rounds_without(at_due, at_came)
    in_a_row = len(list(takewhile(lambda step: step.site == due, reversed(made))))
    if at_due.place != due.place and (loops_below(at_due, due) or _is_one_way(due, at_due)):
        return False
    return rounds > 0 and in_a_row > 0 and in_a_row % rounds == 0


def _met_another(theirs: Sequence[Step], mine: Sequence[Step]) -> bool:
    """Whether what the user called last meant more than one call, the first of which met another public function."""
    return len(theirs) > 1 and _public(theirs[-2]) != _public(mine[-2])


def _public(step: Step) -> str:
    via = step.site.via if step.site is not None else ""
    return via.removeprefix("checkpoint.") or step.op
