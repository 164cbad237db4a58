"""What shows once all ranks of a run have come to their end, though none of them has noticed anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rankdrill.diagnosis import (
    Finding,
    cause_of_hang,
    leak_on,
    left_groups_on,
    lost_update,
    unreceived_message,
)
from rankdrill.diagnosis.calls.own_threads import unordered_threads
from rankdrill.diagnosis.calls.unequal import unequal_groups
from rankdrill.diagnosis.files import lost_file_update
from rankdrill.diagnosis.guarded import or_else
from rankdrill.diagnosis.left_groups import with_who_is_no_member
from rankdrill.diagnosis.on_device import unmet_on_device
from rankdrill.diagnosis.races.race import message_race
from rankdrill.diagnosis.stores.dropped_swaps import dropped_swap
from rankdrill.ledger import LedgerView
from rankdrill.worlds.processes.ledgers import Ledgers
from rankdrill.worlds.processes.watching.ending import Ending
from rankdrill.worlds.processes.watching.positions import Positions
from rankdrill.worlds.rank_outcome import Status

__all__ = ["at_one", "found_at_the_end", "pending_messages"]


def found_at_the_end(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    """What is wrong with a run of no plan whose ranks all returned; None where nothing is, or one did not."""
    if at_one(endings.values()):
        return None
    if any(ending.outcome.status is not Status.RETURNED for ending in endings.values()):
        return None
    return or_else(None, lambda: _found(endings, ledgers))


def _found(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    return (
        _unmet(endings, ledgers)
        or _unequal(endings, ledgers)
        or _leak(endings)
        or _unreceived(endings, ledgers)
        or _raced(endings, ledgers)
        or _lost(endings, ledgers)
        or _beside(endings, ledgers)
        or _left(endings, ledgers)
    )


def at_one(endings: Collection[Ending]) -> bool:
    """Whether all ranks returned with one and the same account, in which nothing may be wrong: so most runs end."""
    first = next(iter(endings)).account
    alike = all(ending.outcome.status is Status.RETURNED and ending.account == first for ending in endings)
    return alike and first.quiet


def pending_messages(endings: Iterable[Ending]) -> bool:
    """Whether messages have been sent that nobody has received, or the other way round."""
    return sum(ending.account.messages or 0 for ending in endings) % (1 << 64) != 0


def _unmet(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    """Whether ranks have handed a call to their device that others never made: it would not have been over."""
    if not any(ending.account.on_device for ending in endings.values()):
        return None
    waits = unmet_on_device(Positions(ledgers, None, len(endings)).now(()))
    views = _of_this_run(endings, ledgers)
    return (
        cause_of_hang(waits, endings.keys() - waits.keys(), [views[rank] for rank in sorted(views)]) if waits else None
    )


def _unequal(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    """Whether ranks have made different groups."""
    counts = {rank: ending.account.groups for rank, ending in endings.items()}
    if len(set(counts.values())) == 1 or -1 in counts.values():
        return None
    return unequal_groups(counts, _since_the_start(endings, ledgers))


def _leak(endings: Mapping[int, Ending]) -> Finding | None:
    """Whether ranks have issued what they never waited for."""
    unwaited = {rank: ending.account.unwaited for rank, ending in endings.items()}
    return leak_on(unwaited) if any(unwaited.values()) else None


def _unreceived(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    """Whether ranks have sent what nobody received, or the other way round."""
    return unreceived_message(_since_the_start(endings, ledgers)) if pending_messages(endings.values()) else None


def _raced(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    """Whether ranks go by who was the first to send to them, and nothing orders those."""
    taken = {rank: ending.account.taken for rank, ending in endings.items()}
    return message_race(taken, _of_this_run(endings, ledgers)) if any(taken.values()) else None


def _lost(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    """Whether ranks have lost what others did to a key of a store, or to a file."""
    if not any(ending.account.updates for ending in endings.values()):
        return None
    views = _of_this_run(endings, ledgers)
    return lost_update(views) or dropped_swap(views) or lost_file_update(views)


def _beside(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    """Whether two threads of a rank have issued on one group, in whatever order."""
    handed_over = any(ending.account.handed_over for ending in endings.values())
    return unordered_threads(_of_this_run(endings, ledgers)) if handed_over else None


def _left(endings: Mapping[int, Ending], ledgers: Ledgers) -> Finding | None:
    """Whether ranks have made groups again and again and left them."""
    left = {rank: ending.account.left_groups for rank, ending in endings.items()}
    found = left_groups_on(left) if any(left.values()) else None
    return with_who_is_no_member(found, _of_this_run(endings, ledgers)) if found is not None else None


def _since_the_start(endings: Mapping[int, Ending], ledgers: Ledgers) -> dict[int, LedgerView]:
    """All that the ledgers hold: groups and messages count on from run to run."""
    return {rank: ledgers.view(rank, 0) for rank in endings}


def _of_this_run(endings: Mapping[int, Ending], ledgers: Ledgers) -> dict[int, LedgerView]:
    return {rank: ledgers.view(rank, ledgers.start(rank)) for rank in endings}
