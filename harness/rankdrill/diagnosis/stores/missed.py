"""An update of a key that was lost, and missed: ranks looked at the key afterwards, and checks of theirs failed."""

from __future__ import annotations

from collections.abc import Mapping

from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.stores.lost import lost_update
from rankdrill.diagnosis.stores.uses import uses_of
from rankdrill.ledger import LedgerView

__all__ = ["missed_update"]


def missed_update(views: Mapping[int, LedgerView]) -> Finding | None:
    """The update that was lost, if somebody has got the key since; else what failed had other reasons."""
    found = lost_update(views)
    if found is None:
        return None
    uses = [use for use in uses_of([views[rank] for rank in sorted(views)]) if found.step == f"key {use.key!r}"]
    last_set = max((use.record.begin_ns for use in uses if use.sets), default=0)
    return found if any(not use.sets and use.record.begin_ns > last_set for use in uses) else None
