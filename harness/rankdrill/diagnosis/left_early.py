"""A rank that left a group while another was still connecting to it, which then fails, or waits for ever.

gloo connects every rank with every other while a group is made, and each rank goes on when its own connections stand,
not when all do (torch 2.13). Who closes its own by then breaks those that are only half there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.waits import name_ranks
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import LEAVES_GROUP, MAKES_GROUP, Kind, Site

__all__ = ["Departure", "is_connecting", "left_early", "said_while_connecting"]

_CONNECTING = "connectFullMesh failed"  # gloo's own words
_NEVER_NS = 1 << 63
_HEARD_NS = 1_000_000_000  # after a process has closed its connections, for its parent to hear that it has ended


@dataclass(frozen=True, slots=True)
class Departure:
    """That a rank left a group, at `at_ns` of the machine's monotonic clock, by what it called or did, and where."""

    at_ns: int
    how: str
    site: Site | None = None


def said_while_connecting(error: BaseException | None) -> bool:
    """Whether `error` says that a connection broke while a group was made, which is not the rank's own fault."""
    return isinstance(error, RuntimeError) and _CONNECTING in str(error)


def is_connecting(record: Record) -> bool:
    """Whether the rank was making a group, and has not come out of it well."""
    return record.step.op in MAKES_GROUP and record.state is not State.ENDED


def left_early(
    lost: Mapping[int, Record | None], ended: Mapping[int, Departure], views: Mapping[int, LedgerView]
) -> Finding:
    """Who left while the ranks `lost` were connecting; that nobody can say it, where no ledger does.

    `lost` says in which step each of them was, None where that is not known; `ended` how those ranks ended whose
    process came to its end or gave up all that it had; `views` are the ledgers of all ranks.
    """
    step = next((record.step for record in lost.values() if record is not None), None)
    others = {rank: view for rank, view in views.items() if rank not in lost}
    gone = _gone(others, lost, ended)
    if not gone:  # on a busy machine it is heard late
        gone = _gone(others, lost, {rank: replace(at, at_ns=at.at_ns - _HEARD_NS) for rank, at in ended.items()})
    making = step.call if step is not None else "a group"
    sites = [record.step.site if record is not None else None for record in lost.values()]
    if not gone:
        verb = "loses" if len(lost) == 1 else "lose"
        did = f"{verb} a connection while {making} is made; which rank closed it cannot be known"
        return Finding(FindingKind.LOST_RANK, making, "rank", (side_of(list(lost), did, sites),))
    late = f"{name_ranks(lost)} still {'connects' if len(lost) == 1 else 'connect'}"
    sides = [_leaving(how, gone, late) for how in dict.fromkeys(left.how for left in gone.values())]
    still = f"{'was' if len(lost) == 1 else 'were'} still connecting in {making}"
    sides.append(side_of(list(lost), still, sites))
    return Finding(FindingKind.LOST_RANK, making, "rank", tuple(sides), tuple(sorted(gone)))


def _gone(
    views: Mapping[int, LedgerView], lost: Mapping[int, Record | None], ended: Mapping[int, Departure]
) -> dict[int, Departure]:
    found = {rank: _departure(view, lost, ended.get(rank)) for rank, view in views.items()}
    return {rank: left for rank, left in found.items() if left is not None}


def _departure(view: LedgerView, lost: Mapping[int, Record | None], ended: Departure | None) -> Departure | None:
    """How the rank left a group that it had made, before one of `lost` was through with it; None if it did not."""
    departures = [
        left
        for record in lost.values()
        if record is not None and (left := _left(view, record, ended)) is not None
        if left.at_ns < (record.end_ns or _NEVER_NS)
    ]
    return min(departures, key=lambda left: left.at_ns, default=None)


def _left(view: LedgerView, late: Record, ended: Departure | None) -> Departure | None:
    groups = list(view.where(lambda kind, state: kind is Kind.GROUP))
    made = next((record for record in groups if _is_same(record, late) and record.state is State.ENDED), None)
    if made is None:
        return None
    members, whole = made.step.fingerprint, made.step.target
    for record in groups:
        after = record.index > made.index and record.step.op == LEAVES_GROUP
        if after and (record.step.target == whole or record.step.fingerprint == members):
            return Departure(record.begin_ns, f"{LEAVES_GROUP}()", record.step.site)
    return ended


def _is_same(one: Record, other: Record) -> bool:
    step, than = one.step, other.step
    return (step.op, step.target, step.sequence, step.fingerprint) == (
        than.op,
        than.target,
        than.sequence,
        than.fingerprint,
    )


def _leaving(how: str, gone: Mapping[int, Departure], late: str) -> Side:
    ranks = sorted(rank for rank, left in gone.items() if left.how == how)
    verb = "leaves" if len(ranks) == 1 else "leave"
    did = f"{verb} by {how} while {late}: a barrier is missing before it"
    return side_of(ranks, did, [gone[rank].site for rank in ranks])
