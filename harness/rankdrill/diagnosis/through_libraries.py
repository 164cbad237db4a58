"""A second look at calls that libraries made: where their lines part, while the user's line is the same for all.

Within ``trainer.fit(…)`` every call of every rank is made by that one line of the user's, and what parts one rank from
the others is a line of the trainer's. So where the first look, at the user's lines, tells no two places apart, or not
who is at fault, or not what was left out or made on top, the same is asked of the lines of libraries. What is told
then has the user's line first all the same, and the library's beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.finding import Finding, FindingKind, Side
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record
from rankdrill.site import one_call
from rankdrill.step import NO_SEQUENCE, Kind, Site
from rankdrill.whose import Whose, whose_file

__all__ = ["as_recorded", "seen_through_libraries"]

_UNSURE = frozenset({FindingKind.CALL_ORDERING, FindingKind.DATATYPE, FindingKind.SIZE})
"""As what calls may look that were left out, or made on top: they do not fit the others' next ones."""
Waits = Mapping[int, Wait]
Views = Sequence[LedgerView]


def seen_through_libraries(
    found: Finding | None, waits: Waits, views: Views, look: Callable[[Waits, Views], Finding | None]
) -> Finding | None:
    """`found`, or what `look` finds by the lines of libraries, where that says more."""
    if _tells_all(found) or not any(view.has_libraries for view in views):
        return found
    whole = [view.through_libraries for view in views]
    again = look({rank: _led_through(wait, whole[rank]) for rank, wait in waits.items()}, whole)
    if again is None or not _says_more(again, found):
        return found
    return replace(again, sides=tuple(map(_by_users_line, again.sides)))


def as_recorded(noticed: Finding, views: Views, told: Views) -> Finding:
    """`noticed`, with each rank's call at its site as `told` has it, `views` or the same through libraries: where ranks
    post what they call there is no room for libraries, nor for all callers.
    """
    return replace(noticed, sides=tuple(_as_recorded(side, noticed, views, told) for side in noticed.sides))


def _tells_all(found: Finding | None) -> bool:
    if found is None or not found.culprits or found.kind in _UNSURE:
        return False
    return not _is_at_one_line(found)


def _is_at_one_line(found: Finding | None) -> bool:
    """Whether it tells of one line only; so it does if there is none."""
    return found is None or len({site and site.lines for side in found.sides for site in side.sites}) <= 1


def _says_more(again: Finding, found: Finding | None) -> bool:
    if found is None:
        return True
    finer = _is_at_one_line(found) and not _is_at_one_line(again)
    if found.culprits and again.culprits == found.culprits:
        return finer or again.kind != found.kind
    if found.culprits:  # of two nobody is in the majority
        return finer and not again.culprits and len({rank for side in found.sides for rank in side.ranks}) == 2
    return bool(again.culprits) or finer


def _led_through(wait: Wait, whole: LedgerView) -> Wait:
    record = whole.at(wait.record.index)
    if record is None or (record.begin_ns, record.step.op) != (wait.record.begin_ns, wait.record.step.op):
        return wait  # nothing that was written down as such
    return replace(wait, record=replace(wait.record, step=replace(wait.record.step, site=record.step.site)))


def _as_recorded(side: Side, noticed: Finding, views: Views, told: Views) -> Side:
    records = [_newest(site, noticed, views[rank]) for rank, site in zip(side.ranks, side.sites, strict=True)]
    made = [told[rank].at(record.index) if record else None for rank, record in zip(side.ranks, records, strict=True)]
    sites = [record.step.site if record else site for record, site in zip(made, side.sites, strict=True)]
    return replace(side, sites=tuple(sites))


def _newest(site: Site | None, noticed: Finding, view: LedgerView) -> Record | None:
    """The newest call that was made at `site`, of those of that number if it has one."""
    for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE, newest_first=True):
        step = record.step
        numbered = noticed.number == NO_SEQUENCE or (step.target, step.sequence) == (noticed.group, noticed.number)
        if numbered and one_call(site, step.site) and step.site is not None:
            return record
    return None


def _by_users_line(side: Side) -> Side:
    """Told by the user's line, with the library's beside where that is another."""
    sites = [_users_line(site) for site in side.sites]
    within = [
        site if site is not None and site != users and _is_of_a_library(site) else None
        for site, users in zip(side.sites, sites, strict=True)
    ]
    return replace(side, sites=tuple(sites), within=tuple(within) if any(within) else ())


def _users_line(site: Site | None) -> Site | None:
    """The line of the user's that `site` is, or that called it by way of libraries; the site where there is none."""
    if site is None:
        return None
    outer = _users_line(site.caller)
    if _is_of_a_library(site):
        return replace(outer, via=site.via or outer.via) if outer is not None else site
    return replace(site, caller=outer)


def _is_of_a_library(site: Site) -> bool:
    return whose_file(site.file) is Whose.LIBRARY
