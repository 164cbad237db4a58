"""What the source says of two sides that met in one call and do not fit: which of the two has its turn later."""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.diagnosis.calls.common_caller import from_one_function, in_any_loop
from rankdrill.diagnosis.calls.conditions import may_be_left_out
from rankdrill.diagnosis.calls.loops import go_by_the_element as one_loop_goes_by_it
from rankdrill.diagnosis.calls.own_threads import on_the_way, started_by
from rankdrill.diagnosis.calls.sequences import calls_on
from rankdrill.diagnosis.calls.source import Order, comes_to_both, made_later_too, order_of
from rankdrill.diagnosis.finding import Finding, FindingKind, Side
from rankdrill.ledger import LedgerView
from rankdrill.site import outward

__all__ = [
    "OF_ONE_CALL",
    "either_turned_round",
    "go_by_the_element",
    "is_of_another_round",
    "is_of_two_threads",
    "one_lies_behind",
    "turned_round",
]

OF_ONE_CALL = frozenset(
    {
        FindingKind.CALL_ORDERING,
        FindingKind.OPERATOR,
        FindingKind.ROOT,
        FindingKind.DATATYPE,
        FindingKind.DEVICE,
        FindingKind.SIZE,
    }
)
"""What two calls that met by mistake may differ in: a call too many meets one of another op, or of another size."""
_OF_FSDP = "FSDP "


def go_by_the_element(finding: Finding) -> bool:
    odd, most = finding.sides[0].sites[0], finding.sides[-1].sites[0]
    if finding.kind is not FindingKind.CALL_ORDERING or odd is None or most is None:
        return False
    return one_loop_goes_by_it(*from_one_function(odd, most))


def turned_round(finding: Finding) -> bool:
    """Whether what the culprits called is what the others come to later."""
    odd, most = finding.sides[0].sites[0], finding.sides[-1].sites[0]
    known = bool(finding.culprits) and odd is not None and most is not None and odd.place != most.place
    return known and odd is not None and most is not None and made_later_too(odd, most)


def either_turned_round(finding: Finding) -> bool:
    """Whether one of two sides that disagree comes later to what the other called, as the source says.

    In branches of their own each has to come to the other's call: else it may be the next one, which looks alike.
    """
    if finding.culprits or len(finding.sides) != 2:
        return False
    one, other = (side.sites[0] for side in finding.sides)
    if one is None or other is None or one.place == other.place:
        return False
    enough = all if order_of(one, other) is Order.APART else any
    return enough((made_later_too(one, other), made_later_too(other, one)))


def is_of_another_round(finding: Finding, views: Sequence[LedgerView]) -> bool:
    """Whether all came by one line of a loop, in which a round may go past it, with what belongs to two of its rounds:
    both another root and another size, or the parameters of another module of FSDP's.
    """
    sites = [side.sites[0] for side in finding.sides]
    site = sites[0]
    if site is None or len({each.place if each is not None else None for each in sites}) != 1:
        return False
    if not in_any_loop(site) or not may_be_left_out(site):
        return False
    made = [calls_on(finding.group, views[side.ranks[0]]).get(finding.number) for side in finding.sides]
    shown = {step.fingerprint.partition(" ")[0] for step in made if step is not None}
    by_root = finding.kind is FindingKind.ROOT and len(shown) > 1
    return by_root or (finding.kind is FindingKind.SIZE and site.via.startswith(_OF_FSDP))


def is_of_two_threads(one: Side, other: Side) -> bool:
    """Whether a thread came to where `one` is, and who started it goes on to where the `other` is: on any rank either
    may come first.
    """
    started = started_by(one.sites[0])
    return started is not None and any(on_the_way(started[0], goes_on) for goes_on in outward(other.sites[0]))


def one_lies_behind(finding: Finding) -> bool:
    """Whether two sides disagree of which one has come further down the same code: it left a call out, if not the
    other made one more.

    Calls of one operation in two branches may be meant for each other, and differ in a root or a size by mistake.
    """
    if finding.culprits or finding.kind not in OF_ONE_CALL or len(finding.sides) != 2:
        return False
    one, other = (side.sites[0] for side in finding.sides)
    if one is None or other is None:
        return False
    if finding.kind is FindingKind.CALL_ORDERING:
        return order_of(one, other) in (Order.AFTER, Order.BEFORE)
    return comes_to_both(one, other) or comes_to_both(other, one)
