"""Groups that ranks made and left: found when all have come to their end.

By default those that were made one after the other, each in the place of the one before; strictly, every one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rankdrill.diagnosis.asynchronous import each_for_itself
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.waits import name_ranks
from rankdrill.ledger import LedgerView, State, members_of
from rankdrill.step import DEFAULT_GROUP, NEW_GROUP, Kind, Site, Step

__all__ = ["LeftGroups", "left_groups_on", "with_who_is_no_member"]

MOST_LINES = 4  # told of one rank
# As in boundary/made_groups.py, which is not to be imported with a report: there of one rank, here of all together.
FEWEST_LEFT = 4
FEWEST_ALONE = 2


@dataclass(frozen=True, slots=True)
class LeftGroups:
    """How many groups of `members` one rank made on one line, and has not destroyed.

    `again`: too many, if the other members have destroyed theirs; `many`: too many also if they have not. `replaced` of
    them have another of the same members in their place.
    """

    site: Site
    members: tuple[int, ...]
    count: int
    again: bool
    many: bool
    replaced: int = 0


def left_groups_on(ranks: Mapping[int, Sequence[LeftGroups]]) -> Finding | None:
    """What is wrong where ranks have left groups behind; None where none has.

    At a line that is one rank's leak the others who leave some there do as that one.
    """
    places = {each.site.place for left in ranks.values() for each in left if each.many} | _of_many_members(ranks)
    return each_for_itself(
        Finding(FindingKind.LEAKED_GROUP, f"{NEW_GROUP} on {DEFAULT_GROUP!r}", "group", (_side(rank, one),), (rank,))
        for rank, left in sorted(ranks.items())
        for one in islice((each for each in left if each.site.place in places or _alone(rank, each, ranks)), MOST_LINES)
    )


def with_who_is_no_member(finding: Finding, views: Mapping[int, LedgerView]) -> Finding:
    """`finding`, and in it the ranks that made these groups at the same line, as no members: it is their line, too.

    Only where all members have left theirs: who destroys its own does so though all run that line.
    """
    places = {site.place for side in finding.sides for site in side.sites if site is not None}
    made = {
        rank: [step for step in _made_by(view) if step.site and step.site.place in places]
        for rank, view in views.items()
    }
    fewest = min((len(made[rank]) for rank in finding.culprits), default=0)
    members = {
        rank for steps in made.values() for step in steps for rank in members_of(step.fingerprint, len(views)) or ()
    }
    more = [rank for rank in made if rank not in members and len(made[rank]) >= max(fewest, 1)]
    if not more or members != set(finding.culprits):
        return finding
    beside = side_of(
        more, "made them, too, as no member" + "s" * (len(more) > 1), [made[rank][0].site for rank in more]
    )
    culprits = tuple(sorted((*finding.culprits, *more)))
    return replace(finding, sides=(*finding.sides, beside), culprits=culprits)


def _made_by(view: LedgerView) -> list[Step]:
    records = view.where(lambda kind, state: kind is Kind.GROUP and state is State.ENDED)
    return [record.step for record in records if record.step.op == NEW_GROUP]


def _of_many_members(ranks: Mapping[int, Sequence[LeftGroups]]) -> set[tuple[str, int]]:
    """Lines that made groups now of these members and now of those, and left as many as are too many of one rank's.

    Each rank that did left several: who makes all that there are to be once more may be trying something else with
    them. So does who makes a mesh again, which has several groups.
    """
    replaced: dict[tuple[str, int], dict[tuple[int, ...], int]] = {}
    own: dict[tuple[str, int], Counter[int]] = {}
    for rank, left in ranks.items():
        for each in left:
            if each.site.via == NEW_GROUP:
                of_members = replaced.setdefault(each.site.place, {})
                of_members[each.members] = max(of_members.get(each.members, 0), each.replaced)
                own.setdefault(each.site.place, Counter())[rank] += each.replaced
    return {
        place
        for place, of_members in replaced.items()
        if len(of_members) > 1
        and sum(of_members.values()) >= FEWEST_LEFT
        and min(own[place].values()) >= FEWEST_ALONE
        and max(own[place].values()) > FEWEST_ALONE
    }


def _alone(rank: int, one: LeftGroups, ranks: Mapping[int, Sequence[LeftGroups]]) -> bool:
    """Whether all other members, and there are some, have destroyed what they made."""
    others = set(one.members) - {rank}
    left = {other for other in others for each in ranks.get(other, ()) if each.members == one.members}
    return one.again and bool(others) and not left


def _side(rank: int, one: LeftGroups) -> Side:
    by = "" if one.site.via == NEW_GROUP else f" by {one.site.via}"
    whose = f"of {name_ranks(one.members)}"
    if one.count == 1:
        return side_of([rank], f"made a group {whose}{by}, and never destroyed it", [one.site])
    made = f"made groups {whose} again and again{by}"
    return side_of([rank], f"{made}, and never destroyed {one.count} of them", [one.site])
