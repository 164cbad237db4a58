"""Groups that overlap, as those of neighbours do: one line of the program then takes the ranks of a group apart.

Elsewhere ranks of a group that come to one line at one turn go on in it together, and who calls on another group there
has strayed. Where each calls on a group of its own, which it shares with the next, that says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rankdrill.diagnosis.calls.turns import collectives_of, places_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.ledger import LedgerView
from rankdrill.step import Step

__all__ = ["takes_ranks_apart"]


def takes_ranks_apart(
    step: Step, places: Collection[tuple[str, int]], rank: int, other: int, views: Sequence[LedgerView]
) -> bool:
    """Whether the line at `places`, where `rank` made `step`, is one that takes ranks of one group apart.

    What it did with `rank` and `other` at their turns before says so; at the first, what it does with all but `rank`.
    """
    groups = {name: ranks for view in views for name, ranks in members_in(view).items()}
    made = [[each for each in collectives_of(view) if _is_at(each, step.op, places)] for view in views]
    now = next((turn for turn, each in enumerate(made[rank]) if _is_same_call(each, step)), 0)
    before = [{one: made[one][turn].target for one in (rank, other) if turn < len(made[one])} for turn in range(now)]
    if before:
        return any(_parted(chosen, groups) for chosen in before)
    return _parted({one: steps[0].target for one, steps in enumerate(made) if steps and one != rank}, groups)


def _is_at(step: Step, op: str, places: Collection[tuple[str, int]]) -> bool:
    return step.op == op and not places_of(step.site).isdisjoint(places)


def _is_same_call(one: Step, other: Step) -> bool:
    return (one.target, one.sequence) == (other.target, other.sequence)


def _parted(chosen: Mapping[int, str], groups: Mapping[str, Sequence[int]]) -> bool:
    """Whether one that is in the group that another one chose has chosen another."""
    names = set(chosen.values())
    return len(names) > 1 and any(chosen.get(one, name) != name for name in names for one in groups.get(name, ()))
