"""An update of a key that was lost, and missed: ranks looked at the key afterwards, and checks of theirs failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.stores.dropped_swaps import dropped_swap
from rankdrill.diagnosis.stores.lost import lost_update
from rankdrill.diagnosis.stores.uses import uses_of
from rankdrill.ledger import LedgerView, State
from rankdrill.step import NO_SEQUENCE, Kind

__all__ = ["missed_update"]


def missed_update(failed: Collection[int], views: Mapping[int, LedgerView]) -> Finding | None:
    """The update that was lost, if all that `failed` have got the key since, or heard from somebody who has.

    Else what failed had other reasons.
    """
    found = lost_update(views) or dropped_swap(views)
    if found is None:
        return None
    uses = [use for use in uses_of([views[rank] for rank in sorted(views)]) if found.step == f"key {use.key!r}"]
    last_set = max((use.record.begin_ns for use in uses if use.sets), default=0)
    got = {use.rank: use.record.end_ns for use in uses if not use.sets and use.record.begin_ns > last_set}
    if not got:
        return None
    since = min(got.values())
    return found if all(rank in got or _has_met_others(views[rank], since) for rank in failed) else None


def _has_met_others(view: LedgerView, since: int) -> bool:
    """Whether it has come out of a collective that it may have heard in of what somebody got by then."""
    calls = view.where(lambda kind, state: kind is Kind.COLLECTIVE and state is State.ENDED)
    return any(record.end_ns > since for record in calls if record.step.sequence != NO_SEQUENCE)
