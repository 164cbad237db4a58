"""What is wrong with a whole run, where that can be said in one finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from signal import SIGABRT
from typing import TYPE_CHECKING

from rankdrill.diagnosis import Finding, FindingKind, Wait, cause_of_hang, traced_back
from rankdrill.diagnosis.calls.group_names import named_again
from rankdrill.diagnosis.calls.own_threads import unordered_threads
from rankdrill.diagnosis.calls.torch_threads import beside_torch
from rankdrill.diagnosis.ddp import said_by_ddp
from rankdrill.diagnosis.guarded import or_else
from rankdrill.diagnosis.held_locks import held_lock, in_each_others_way, stopped_by_lock
from rankdrill.diagnosis.left_early import Departure, is_connecting, left_early, said_while_connecting
from rankdrill.diagnosis.missing_files import look_of, missing_file
from rankdrill.diagnosis.monitored import not_passed
from rankdrill.diagnosis.races.missed import missed_race
from rankdrill.diagnosis.refused import refused_by_torch
from rankdrill.diagnosis.stores.cause import cause_apart
from rankdrill.diagnosis.stores.keys import awaits_key, awaits_meeting
from rankdrill.diagnosis.stores.lock_files import tried_again
from rankdrill.diagnosis.stores.meetings import given_up
from rankdrill.diagnosis.stores.missed import missed_update
from rankdrill.diagnosis.stores.missing import missing_key
from rankdrill.diagnosis.stores.polled import awaited, polled
from rankdrill.diagnosis.stores.served import went_with_its_server
from rankdrill.diagnosis.way_out import lost_on_the_way_out, with_ended_thread
from rankdrill.ledger import Record, State
from rankdrill.step import Kind
from rankdrill.worlds.dumps import innermost_site, threads_in
from rankdrill.worlds.let_down import let_down
from rankdrill.worlds.suffering import lost_another

if TYPE_CHECKING:
    from rankdrill.ledger import LedgerView
    from rankdrill.step import Site
    from rankdrill.worlds.rank_outcome import RankOutcome

__all__ = ["CHECKS", "UNNOTICED", "finding_on"]

CHECKS = (AssertionError, LookupError)
"""What a rank raises that looks at what has come of it all, and misses something."""
UNNOTICED = frozenset({FindingKind.LOST_UPDATE, FindingKind.RACE})
"""What goes wrong without that anybody notices, before such a check fails."""
_OF_LOADING = frozenset({"UnpicklingError", "EOFError", "CheckpointException"})
"""What a rank raises that was given another call's bytes."""


def finding_on(ranks: Sequence[RankOutcome]) -> Finding | None:
    """The finding on a run that did not end well; None where ranks have to speak for themselves."""
    noticed = next((rank.finding for rank in ranks if rank.finding is not None), None)
    return or_else(noticed, partial(_explained, ranks, noticed))


def _explained(ranks: Sequence[RankOutcome], noticed: Finding | None) -> Finding | None:
    found = _found(ranks, noticed)
    failures = {rank.rank: rank.failures for rank in ranks if rank.failures}
    if found is None or not failures:
        return found
    return with_ended_thread(lost_on_the_way_out(found, failures), failures)


def _found(ranks: Sequence[RankOutcome], noticed: Finding | None) -> Finding | None:
    views = [rank.ledger for rank in ranks]
    waits = {rank.rank: rank.wait for rank in ranks if rank.wait is not None}
    if noticed is not None:
        return traced_back(noticed, waits, views)
    # What a plan leads to is no finding; who raised, died or just went on has more to say than who waits for it.
    if any(any(rank.fired) for rank in ranks):
        return None
    again = _named_again(ranks)
    if again is not None:
        return again
    early = _left_while_connecting(ranks)
    if early is not None or any(rank.status == "died" for rank in ranks):
        return early or _aborted_between_threads(ranks)
    if any(rank.status == "raised" for rank in ranks):
        return (
            _not_passed(ranks)
            or _without_its_store(ranks)
            or _not_met(ranks, waits)
            or _timed_out(ranks, waits)
            or let_down(ranks)
            or _got_anothers(ranks)
            or _told_by_errors(ranks)
        )
    by_lock = _stopped_by_lock(ranks, list(waits.values()))
    if by_lock is not None:
        return by_lock
    by_files = _looking_for_files(ranks, waits)
    if by_files is not None:
        return by_files
    tried = tried_again({rank.rank: _is_at(rank) for rank in filter(_runs, ranks)}, views)
    for rank in filter(_runs, ranks):
        asking = polled(rank.rank, dict(enumerate(views))) or tried.get(rank.rank)
        if asking is None:
            return None
        waits[rank.rank] = asking
    returned = {rank.rank for rank in ranks if rank.status == "returned"}
    return cause_of_hang(waits, returned - waits.keys(), views) or _crossed_by_threads(waits, views)


def _looking_for_files(ranks: Sequence[RankOutcome], waits: Mapping[int, Wait]) -> Finding | None:
    """What is wrong where all that still run look for files that nobody makes."""
    at = {rank.rank: _is_at(rank) for rank in filter(_runs, ranks)}
    looks = {rank: look_of(rank, ranks[rank].ledger, site) for rank, site in at.items()}
    known = {rank: look for rank, look in looks.items() if look is not None}
    return missing_file(known, waits, [rank.ledger for rank in ranks]) if len(known) == len(looks) else None


def _is_at(rank: RankOutcome) -> Site | None:
    return innermost_site(rank.stack, current=False) or rank.origin


def _aborted_between_threads(ranks: Sequence[RankOutcome]) -> Finding | None:
    """Where gloo has ended a rank in a collective, and two of its threads make some: calls that do not fit have met."""
    aborted = [rank for rank in ranks if rank.death is not None and rank.death.signal == SIGABRT]
    within = [rank for rank in aborted if rank.ledger.last_open is not None and rank.ledger.last_open.step.digest]
    views = {rank.rank: rank.ledger for rank in ranks}
    return (unordered_threads(views, met=True) or beside_torch(views)) if within else None


def _got_anothers(ranks: Sequence[RankOutcome]) -> Finding | None:
    """Where all that raised did so over what they were to load, and calls of torch's threads came in between others."""
    raised = [rank.error for rank in ranks if rank.status == "raised" and not lost_another(rank.error)]
    if not raised or not all(type(error).__name__ in _OF_LOADING for error in raised):
        return None
    return beside_torch({rank.rank: rank.ledger for rank in ranks})


def _crossed_by_threads(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """Where all wait in what all have come to, and nothing orders calls of two threads of a rank: the backend may have
    got them in another order than they were numbered in.
    """
    if not waits or any(wait.missing for wait in waits.values()):
        return None
    return unordered_threads(dict(enumerate(views))) or beside_torch(dict(enumerate(views)))


def _named_again(ranks: Sequence[RankOutcome]) -> Finding | None:
    """What is wrong where ranks met in a group of a name that had been another's, and all that failed failed there."""
    raised = [rank for rank in ranks if rank.status == "raised"]
    if any(not lost_another(rank.error) for rank in raised) or any(rank.status == "died" for rank in ranks):
        return None
    trouble = {rank.rank: rank.ledger.last_raised for rank in raised}
    trouble |= {rank.rank: rank.wait.record for rank in ranks if rank.wait is not None and not rank.wait.missing}
    found = {rank: record for rank, record in trouble.items() if record is not None}
    return named_again(found, {rank.rank: rank.ledger for rank in ranks})


def _left_while_connecting(ranks: Sequence[RankOutcome]) -> Finding | None:
    """What is wrong where all that went wrong did so while a group was made, in which a rank was left behind."""
    raised = [rank for rank in ranks if rank.status == "raised"]
    lost = [rank for rank in raised if said_while_connecting(rank.error)]
    own_trouble = any(not lost_another(rank.error) for rank in raised)
    if own_trouble or any(rank.status == "died" and not _exits_well(rank) for rank in ranks):
        return None
    if not raised:
        lost = [rank for rank in ranks if rank.wait is not None and not rank.wait.missing and _connects(rank)]
    if not lost:
        return None
    ended = {rank.rank: left for rank in ranks if (left := _departure(rank)) is not None}
    found = left_early({rank.rank: _making(rank) for rank in lost}, ended, {rank.rank: rank.ledger for rank in ranks})
    return found if raised or found.culprits else None


def _exits_well(rank: RankOutcome) -> bool:
    return rank.death is not None and rank.death.code == 0 and not rank.orphaned


def _connects(rank: RankOutcome) -> bool:
    return rank.step is not None and is_connecting(rank.step)


def _making(rank: RankOutcome) -> Record | None:
    """The step in which it was making a group when it ended, or was ended."""
    last = rank.ledger.last
    return last if last is not None and is_connecting(last) else None


def _departure(rank: RankOutcome) -> Departure | None:
    """How its process ended. Who returned has closed nothing: it keeps its connections until the run is over."""
    if rank.death is None:
        return None
    return Departure(rank.death.at_ns, rank.death.how.removeprefix("by ") or str(rank.death), rank.death.site)


def _stopped_by_lock(ranks: Sequence[RankOutcome], waits: Sequence[Wait]) -> Finding | None:
    held = {rank.rank: held_lock(threads_in(rank.stack)) for rank in ranks if rank.status == "stuck"}
    found = {
        rank: finding
        for rank, lock in held.items()
        if lock is not None and (finding := stopped_by_lock(rank, lock, waits)) is not None
    }
    missing = {wait.rank: wait.missing for wait in waits}
    if found and all(not {*missing.get(rank, ())}.isdisjoint(found.keys() - {rank}) for rank in found):
        return in_each_others_way(list(found.values()))
    return next(iter(found.values()), None)


def _not_passed(ranks: Sequence[RankOutcome]) -> Finding | None:
    """Who was missing in a monitored barrier, where nobody has trouble of its own."""
    raised = {rank.rank: str(rank.error) for rank in ranks if rank.status == "raised"}
    own_trouble = any(rank.status == "raised" and not lost_another(rank.error) for rank in ranks)
    if own_trouble or any(rank.status == "stuck" for rank in ranks):
        return None
    return not_passed(raised, {rank.rank: rank.ledger for rank in ranks})


def _without_its_store(ranks: Sequence[RankOutcome]) -> Finding | None:
    """What is wrong where all that raised had lost a store that another rank served, which has returned."""
    raised = {rank.rank: rank for rank in ranks if rank.status == "raised"}
    lost = {rank: record for rank, each in raised.items() if (record := _lost_store(each)) is not None}
    returned = {rank.rank for rank in ranks if rank.status == "returned"}
    return (
        went_with_its_server(lost, returned, [rank.ledger for rank in ranks]) if lost.keys() == raised.keys() else None
    )


def _lost_store(rank: RankOutcome) -> Record | None:
    last = rank.ledger.last_raised
    late = "timeout" in str(rank.error).casefold()
    return last if last is not None and last.step.kind is Kind.STORE and lost_another(rank.error) and not late else None


def _not_met(ranks: Sequence[RankOutcome], waits: Mapping[int, Wait]) -> Finding | None:
    """What is wrong where all that raised had waited at a store for others that did not come."""
    raised = {rank.rank: rank for rank in ranks if rank.status == "raised"}
    asked = {rank: record for rank, each in raised.items() if (record := _waited_in_vain(each)) is not None}
    returned = {rank.rank for rank in ranks if rank.status == "returned"}
    return given_up(asked, waits, returned, [rank.ledger for rank in ranks]) if asked.keys() == raised.keys() else None


def _waited_in_vain(rank: RankOutcome) -> Record | None:
    last = rank.ledger.last_raised
    late = lost_another(rank.error) and "timeout" in str(rank.error).casefold()
    return last if last is not None and late and awaits_meeting(last.step) else None


def _timed_out(ranks: Sequence[RankOutcome], waits: Mapping[int, Wait]) -> Finding | None:
    """What is wrong where all that raised had waited for keys of a store which are not there yet: until one gave up.

    That one may have served the store, and others have lost it then.
    """
    views = [rank.ledger for rank in ranks]
    raised = [rank for rank in ranks if rank.status == "raised"]
    if not any("timeout" in str(rank.error).casefold() for rank in raised):
        return None
    asked = {rank.rank: _asked_in_vain(rank) for rank in raised}
    beside = {
        rank: wait
        for rank, records in asked.items()
        if (wait := next(_awaited(rank, records, dict(enumerate(views))), None)) is not None
    }
    if len(beside) < len(asked):
        return None
    waits = {**waits, **beside}
    returned = {rank.rank for rank in ranks if rank.status == "returned"}
    return cause_apart(waits, returned - waits.keys(), views) or missing_key(beside, waits, views)


def _awaited(rank: int, records: Sequence[Record], views: Mapping[int, LedgerView]) -> Iterator[Wait]:
    found = (awaited(rank, record, views) for record in records)
    return (wait for wait in found if wait is not None)


def _asked_in_vain(rank: RankOutcome) -> list[Record]:
    """The waits that it gave up, one for each of the keys that it awaited at once."""
    last = rank.ledger.last_raised
    if not lost_another(rank.error) or last is None:
        return []
    newest = rank.ledger.where(lambda kind, state: state is State.RAISED, newest_first=True)
    at_once = takewhile(lambda record: record.step.op == last.step.op and record.end_ns > last.begin_ns, newest)
    return [record for record in at_once if awaits_key(record.step)]


def _told_by_errors(ranks: Sequence[RankOutcome]) -> Finding | None:
    """What torch itself said is wrong, where that is all that ranks raised, or what their own checks have missed."""
    own = [rank for rank in ranks if rank.status == "raised" and not lost_another(rank.error)]
    raised = {rank.rank: (str(rank.error), rank.site) for rank in own}
    last = [rank.last_call for rank in ranks]
    said = said_by_ddp(raised, [call.step.site if call is not None else None for call in last])
    return said or refused_by_torch(raised, len(ranks)) or _missed_by_checks(own, ranks)


def _missed_by_checks(own: Sequence[RankOutcome], ranks: Sequence[RankOutcome]) -> Finding | None:
    """What went wrong without anybody's noticing, where ranks raised what one does who misses something by that."""
    if not own or not all(isinstance(rank.error, CHECKS) for rank in own):
        return None
    views = {rank.rank: rank.ledger for rank in ranks}
    failed = {rank.rank: rank.site for rank in own}
    return missed_update(failed, views) or missed_race(failed, views)


def _runs(rank: RankOutcome) -> bool:
    return rank.status == "stuck" and rank.wait is None and not rank.cut
