"""Making a group is a step of every rank of the default group, whether it will be a member or not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from operator import index
from typing import Any

import torch.distributed as dist

from rankdrill.boundary import torch_seam
from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gate import Call
from rankdrill.boundary.made_groups import made_by_user
from rankdrill.boundary.numbering import numbering
from rankdrill.ledger import spell_members
from rankdrill.step import LOCAL_GROUP, NEW_GROUP, Contract, Kind, Named, Step

__all__ = ["install_new_groups"]


def install_new_groups(boundary: Boundary) -> Callable[[], None]:
    """Make each ``new_group`` a step; returns a function that undoes this."""

    def around(ranks: Iterable[int] | None, alone: bool, make: Callable[[], Any]) -> Any:
        whole = dist.group.WORLD
        if not isinstance(whole, DrilledGroup):
            return make()
        whole.groups_made_alone += alone
        if not boundary.open:
            return make()
        site = made_by_user()
        members = whole.global_ranks if ranks is None else _members(ranks, whole.size())
        if members is None or (alone and whole.global_ranks[whole.place] not in members):
            group = make()
        else:
            group = (_made_alone if alone else _made)(whole, members, make, boundary)
        if site is not None and isinstance(group, DrilledGroup):
            group.made = boundary.made.make(site, group.global_ranks)
        return group

    return torch_seam.stand_around_new_groups(around)


def _members(ranks: Iterable[Any], size: int) -> tuple[int, ...] | None:
    """In their order, as torch makes groups; None for what torch itself refuses, in a world of `size`."""
    try:
        members = tuple(sorted(map(index, ranks))) if isinstance(ranks, Collection) else ()
    except TypeError:
        return None
    right = members and len(set(members)) == len(members) and members[0] >= 0 and members[-1] < size
    return members if right else None


def _made_alone(whole: DrilledGroup, members: tuple[int, ...], make: Callable[[], Any], boundary: Boundary) -> Any:
    """Have `make` make a group of `members`, who alone call it, as the next one that they make so."""
    numbers = whole.made_alone.setdefault(members, numbering())
    number = numbers.take()
    name, held = torch_seam.local_group_name(members)
    step = Step(
        Kind.GROUP,
        LOCAL_GROUP,
        whole.label,
        spell_members(members)[0],
        sequence=number,
        site=call_site(2),
        digest=Named(Named.mark_of(name), held).digest,
    )
    try:
        return boundary.cross(step, {"ranks": members}, lambda _call: make())
    except BaseException:
        numbers.give_back(number)
        raise


def _made(whole: DrilledGroup, members: tuple[int, ...], make: Callable[[], Any], boundary: Boundary) -> Any:
    """Have `make` make a group of `members`, as the next one of the default group `whole`."""
    number = whole.groups_made.take()
    step = Step(Kind.GROUP, NEW_GROUP, whole.label, spell_members(members)[0], sequence=number, site=call_site(2))
    contract = Contract(NEW_GROUP, sizes=members, shown=step.fingerprint)
    posted = replace(step, digest=contract.digest, contract=contract)

    def real(call: Call) -> Any:
        if boundary.watch is not None:
            boundary.watch.enter(whole.making, whole.global_ranks, whole.place, posted)
        return make()

    try:
        return boundary.cross(step, {"ranks": members}, real)
    except BaseException:
        # It was refused, and never took place: the next one meets the others' there.
        whole.groups_made.give_back(number)
        if boundary.watch is not None:
            boundary.watch.retract(whole.making, posted)
        raise
