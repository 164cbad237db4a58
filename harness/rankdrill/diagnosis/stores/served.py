"""Ranks that lost a store because the one that served it had come to its end: a TCPStore goes with its server."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.stores.keys import stores_of
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import JOINS_STORE, Kind, Meeting

__all__ = ["went_with_its_server"]


def went_with_its_server(
    lost: Mapping[int, Record], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """Who served the store that ranks `lost` in these calls, and has `returned`; None where it is not one store's."""
    stores = stores_of(record.step for record in lost.values())
    if len(stores) != 1:
        return None
    (store,) = stores
    served = {rank: made for rank in returned if (made := _serving(store, views[rank])) is not None}
    if len(served) != 1:
        return None
    ((rank, made),) = served.items()
    after, site = words.last_call(views[rank])
    did = f"returned{after}, and {store}, which it served, went with it"
    lose = f"{'loses' if len(lost) == 1 else 'lose'} it in {next(iter(lost.values())).step.name}"
    sides = (
        side_of([rank], did, [site or made.step.site]),
        side_of(list(lost), lose, [record.step.site for record in lost.values()]),
    )
    return Finding(FindingKind.LOST_RANK, store, "rank", sides, (rank,))


def _serving(store: str, view: LedgerView) -> Record | None:
    """Where the rank made the store, as its server."""
    for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED):
        meeting = Meeting.of(record.step) if record.step.op == JOINS_STORE else None
        if meeting is not None and meeting.serves and meeting.store == store:
            return record
    return None
