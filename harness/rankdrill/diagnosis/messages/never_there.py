"""The one rank that has never come to the line at which all others do the other half of what comes from there.

It has gone past that line, in the function it stands in, where nothing that compares ranks keeps it away: by an ``if
left:``, say, of which the rank to the left is the first, and its number false.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.calls.tree import function_around, path_to, tree_of
from rankdrill.diagnosis.messages.misaddressed import Standing
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.site import outward
from rankdrill.step import BATCH, Site

__all__ = ["left_out_of_a_batch", "never_there"]

FEWEST_THERE = 2


def never_there(end: MessageEnd, traffic: Traffic, stands: Standing) -> Site | None:
    """Where all but the two ranks of `end` do the other half of such, if its peer has gone past that, and never come
    to it; else None.
    """
    if traffic.met(end.stream):
        return None
    there = {rank: sites for rank in traffic.ends if (sites := traffic.sites_meeting(end, rank))}
    found = [site for sites in there.values() for site in sites]
    others = traffic.ends.keys() - {end.rank, end.peer}
    if len(others) < FEWEST_THERE or not others <= there.keys() or len({site.place for site in found}) > 1:
        return None
    at = stands.at.get(end.peer)
    made = [each.site for each in traffic.ends.get(end.peer, ()) if each.site is not None]
    if (at is None and end.peer not in stands.returned) or any(site.place == found[0].place for site in made):
        return None
    return found[0] if _went_past(found, [*made, *([at] if at is not None else [])]) else None


def left_out_of_a_batch(end: MessageEnd, traffic: Traffic) -> Site | None:
    """The line of a batch in which the peer of `end` has none, where all others, several, have some, or one less than
    all others have, who have as many each. Not where it may be the border of a row. Or it takes there what the rank of
    `end` sends, and sends it nothing, where all other neighbours do both.
    """
    here = end.site
    if here is None or here.via != BATCH:
        return None
    if _is_one_sided(end, here, traffic):
        return here
    there = traffic.halves_at(here)
    halves = {rank: (theirs[0] if end.sends else theirs[1]) for rank, theirs in there.items()}
    peers = halves.pop(end.peer, 0)
    if there.keys() != traffic.ends.keys() or len(halves) < FEWEST_THERE or _closes_a_ring(end, traffic):
        return None
    fewest, most = min(halves.values()), max(halves.values())
    return here if fewest > peers == 0 or fewest == most == peers + 1 else None


def _is_one_sided(end: MessageEnd, here: Site, traffic: Traffic) -> bool:
    """Whether all neighbours at that line, several pairs, send and receive both, but the peer of `end` with its rank:
    that has met the other half of what it has with that one.
    """
    both: dict[tuple[int, int], set[bool]] = {}
    for rank, ends in traffic.ends.items():
        for each in ends:
            if each.site is not None and each.site.place == here.place:
                both.setdefault((rank, each.peer), set()).add(each.sends)
    one_sided = [pair for pair, halves in both.items() if len(halves) == 1]
    pairs = {frozenset(pair) for pair in both}
    met = any(each.peer == end.rank and traffic.met(each.stream) > each.number for each in traffic.ends[end.peer])
    return (
        one_sided == [(end.peer, end.rank)]
        and both[end.peer, end.rank] == {end.sends}
        and met
        and len(pairs) > FEWEST_THERE
    )


def _closes_a_ring(end: MessageEnd, traffic: Traffic) -> bool:
    """Whether it goes from the last rank to the first, or back: a row has no such, and its borders have one less."""
    return {end.rank, end.peer} == {min(traffic.ends), max(traffic.ends)}


def _went_past(lines: Sequence[Site], own: Collection[Site]) -> bool:
    """Whether a rank that came to its `own` lines has been in the function of `lines`, and might have come to these."""
    function = function_around(lines[0])
    if function is None or _is_for_another_part(function, lines[0]):
        return False
    inside = [site for each in own for site in outward(each) if function_around(site) is function]
    pairs = (from_one_function(line, each) for line in lines for each in own)
    return bool(inside) and all(order_of(*pair) is not Order.APART for pair in pairs)


def _is_for_another_part(function: ast.AST, line: Site) -> bool:
    """Whether ranks that come there play one part, by the nearest condition, and the others another one."""
    tree = tree_of(line.file)
    around = [node for node, part in path_to(function, line.line) if isinstance(node, ast.If) and part != "test"]
    if not around or tree is None:
        return True
    test = around[-1].test
    return bool(around[-1].orelse) or (isinstance(test, ast.Compare) and asks_for_the_rank(test, tree))
