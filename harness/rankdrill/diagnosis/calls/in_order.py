"""Tensors that do not fit, brought to one call by one line: are they the wrong ones, or is it another one's turn?

A loop over what is in another order on one rank, a dictionary or a set, shows as tensors of other sizes. What a rank
would bring next tells, where it can look ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from rankdrill.diagnosis.calls.common_caller import in_any_loop
from rankdrill.diagnosis.calls.conditions import may_be_left_out
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.ledger import Post
from rankdrill.ledger.posts import Marks
from rankdrill.step import Site

__all__ = ["LookAhead", "in_another_order", "is_to_look_ahead"]


class LookAhead(Protocol):
    """What a rank would call next."""

    def __call__(self, group: str, site: Site) -> Sequence[Marks] | None:
        """On the group of that name, by the line of `site`; None in the copy of it that finds this out."""

    def before(self, group: str, site: Site) -> Sequence[str]:
        """What it has brought to the calls there, from the line of `site`, before this one."""


_KINDS = frozenset({FindingKind.DATATYPE, FindingKind.SIZE})


def is_to_look_ahead(finding: Finding, posts: Sequence[Post]) -> bool:
    """Whether all have come by one line, in a loop that has no way past it: then none has left out a round alone."""
    if finding.kind not in _KINDS or len({post.site.place if post.site else None for post in posts}) != 1:
        return False
    site = posts[0].site
    return site is not None and in_any_loop(site) and not may_be_left_out(site)


def in_another_order(
    finding: Finding, rank: int, posts: Sequence[Post], before: Sequence[str], later: Sequence[Marks]
) -> Finding:
    """`finding`, which is one of order if `rank` will come with what another has brought now, and in its turn.

    What all rounds are to bring, and this one does not, is no other turn.
    """
    mine = next((post for post in posts if post.rank == rank), None)
    if mine is None:
        return finding
    others = [
        post
        for post in posts
        if post.marks != mine.marks
        and 0 < later.count(post.marks) <= later.count(mine.marks) + 1
        and (_as_in_a_record(post) not in before or _as_in_a_record(mine) in before)
    ]
    own = next((side for side in finding.sides if rank in side.ranks), None)
    if not others or own is None:
        return finding
    told = side_of(own.ranks, f"{own.did}, and with {others[0].shown} later", own.sites)
    sides = tuple(told if side is own else side for side in finding.sides)
    return replace(finding, kind=FindingKind.CALL_ORDERING, argument="op", sides=sides)


def _as_in_a_record(post: Post) -> str:
    """Of what was brought as much as a record of a call begins with: of many tensors some are only counted."""
    return post.shown.partition(" ")[0]
