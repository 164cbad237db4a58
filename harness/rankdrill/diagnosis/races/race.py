"""Message races, told where both speak clearly: what ranks did, and what the receiver's source does with it.

Ranks did this: several sent to one that receives from anybody, not all the same, and nothing orders two of the sends.
The source says this: the rank that sent is dropped, and what was received is kept in the order in which it came, or
answered in a row, or only the last of it counts. Without source to read, or where that does anything else with the
messages, nothing is said: sums, the largest, sorted results and messages that say whose they are are as right as ever.

Where ranks wait for ever, one that answers in a row shows itself: it answers one whose message it has not taken yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.races.account import (
    BY_LINES,
    BY_ROUNDS,
    BY_TURN,
    IN_PLACES,
    THE_LAST,
    TO_THE_NEXT,
    TOGETHER,
    Deed,
    Race,
    by_name_later,
    by_name_otherwise,
    in_another_order,
    told,
)
from rankdrill.diagnosis.races.answers import answered_as_filed, answers_in_a_row
from rankdrill.diagnosis.races.kept_in_objects import kept_in_an_object_by_rank
from rankdrill.diagnosis.races.last_word import counts_the_last
from rankdrill.diagnosis.races.lines import has_a_line_for_each, is_put_together
from rankdrill.diagnosis.races.order import (
    all_unordered,
    before_its_turn,
    destinations,
    named_otherwise,
    newest_from_anybody,
    of_two_rounds,
    taken_already,
    taken_from_anybody,
    unordered,
)
from rankdrill.diagnosis.races.places import answered_by_place, kept_in_order
from rankdrill.diagnosis.races.reception import reception_at
from rankdrill.diagnosis.races.rounds import counts_by_rounds
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.diagnosis.races.weighed import is_weighed_by_turn
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import ANY_TAG, SEND

__all__ = ["answer_to_another", "message_race", "waits_for_what_came_first"]


def message_race(taken: Mapping[int, Sequence[Taken]], views: Mapping[int, LedgerView]) -> Finding | None:
    """The first race of those that were `taken` from anybody, by rank, with the ranks that raced in the same way there.

    All ranks have come to their end; `views` are their ledgers.
    """
    races: dict[int, Race] = {}
    for rank, each in sorted(taken.items()):
        found = (kind(rank, one, views) for one in each for kind in _KINDS)
        race = next((one for one in found if one is not None), None)
        if race is not None:
            races[rank] = race
    if not races:
        return None
    first = next(iter(races.values()))
    alike = {
        rank: race for rank, race in races.items() if (race.taken.site, race.deed) == (first.taken.site, first.deed)
    }
    return told(alike)


def _race(rank: int, taken: Taken, views: Mapping[int, LedgerView]) -> Race | None:
    for words, exchanged in taken.otherwise:
        pair = all_unordered(rank, taken, exchanged, views)
        if pair is not None:
            return Race(taken, pair, in_another_order(words))
    deed = _deed(rank, taken, views[rank]) if taken.differ else None
    if deed is None:
        return None
    pair = unordered(rank, taken, views, the_last=deed is THE_LAST, if_buffered=deed is TOGETHER)
    return Race(taken, pair, deed) if pair is not None else None


def _out_of_turn(rank: int, taken: Taken, views: Mapping[int, LedgerView]) -> Race | None:
    """That who is named later might have been taken first; unless the rank asks whom it took, to name the other."""
    pair = None if taken.by_lines else before_its_turn(rank, taken, views)
    if pair is None or reception_at(taken.site) is None:
        return None
    return Race(taken, pair, by_name_later(pair[1].rank))


def _named_otherwise(rank: int, taken: Taken, views: Mapping[int, LedgerView]) -> Race | None:
    """That a line which names its sender in all other rounds names none in one."""
    found = None if taken.by_lines else named_otherwise(rank, taken, views)
    if found is None or reception_at(taken.site) is None:
        return None
    sender, first, second = found
    return Race(taken, (first, second), by_name_otherwise(sender))


def _by_rounds(rank: int, taken: Taken, views: Mapping[int, LedgerView]) -> Race | None:
    """That one of the next round may be taken for one of this."""
    reception = reception_at(taken.site) if taken.vary and not taken.by_lines else None
    pair = of_two_rounds(rank, taken, views) if reception is not None and counts_by_rounds(reception) else None
    return Race(taken, pair, BY_ROUNDS) if pair is not None else None


def _of_two(rank: int, taken: Taken, views: Mapping[int, LedgerView]) -> Race | None:
    """That one of two lines may take what is meant for the other one, where what they take is put together."""
    if not taken.by_lines or not taken.differ:
        return None
    here = (taken.site.file, taken.site.function)
    steps = (record.step for record in taken_from_anybody(views[rank]) if record.step.target == taken.group)
    sites = {step.site for step in steps if step.site is not None and (step.site.file, step.site.function) == here}
    together = [site for site in sites if (found := reception_at(site)) is not None and is_put_together(found)]
    pair = unordered(rank, taken, views) if together else None
    if pair is None:
        return None
    return Race(replace(taken, site=min(together, key=lambda site: site.line)), pair, TOGETHER)


_KINDS = (_race, _out_of_turn, _named_otherwise, _by_rounds, _of_two)


def _deed(rank: int, taken: Taken, view: LedgerView) -> Deed | None:
    """What is done with messages that depends on which came first; None where nothing is, or nobody can say."""
    reception = reception_at(taken.site)
    if reception is None:
        return None
    if taken.by_lines:
        return BY_LINES if has_a_line_for_each(reception, taken.elements) else None
    if kept_in_order(reception, taken.elements) or kept_in_an_object_by_rank(reception, taken.site.file):
        return IN_PLACES
    if is_weighed_by_turn(reception):
        return BY_TURN
    if is_put_together(reception):
        return TOGETHER
    if counts_the_last(reception, rank):
        return THE_LAST
    line = answers_in_a_row(reception) or answered_by_place(reception) or answered_as_filed(reception, taken.site.file)
    # Who hands messages on to others than those that sent them may do so in whatever order.
    answered = line is not None and destinations(view, taken.site.file, line) == set(taken.senders)
    return TO_THE_NEXT if answered else None


def answer_to_another(waits: Mapping[int, Wait], views: Mapping[int, LedgerView]) -> Finding | None:
    """What is wrong where a rank waits to answer one that still waits for its own message to be taken."""
    for rank, wait in waits.items():
        step, took = wait.record.step, newest_from_anybody(views[rank], wait.record.index)
        if took is None or step.op != SEND or step.message is None or step.site is None or took.step.site is None:
            continue
        asks, of = waits.get(step.message.peer), took.step.message
        if asks is None or of is None or of.peer == asks.rank or not _asks(asks, rank, of.tag, took.step.target):
            continue
        reception = reception_at(took.step.site)
        line = answers_in_a_row(reception) if reception is not None else None
        taken = Taken(took.step.site, took.step.target, of.tag, (of.peer, asks.rank), True, 1)
        pair = unordered(rank, taken, views) if (took.step.site.file, line) == step.site.place else None
        if pair is not None:
            return told({rank: Race(taken, pair, TO_THE_NEXT)})
    return None


def waits_for_what_came_first(waits: Mapping[int, Wait], views: Mapping[int, LedgerView]) -> Finding | None:
    """What is wrong where a rank waits by name for a message that it has taken from anybody, another's being there."""
    for rank, wait in waits.items():
        found = taken_already(wait.record, rank, views)
        if found is None or reception_at(found[0]) is None:
            continue
        site, first, other = found
        step = wait.record.step
        tag = step.message.tag if step.message is not None else ANY_TAG
        taken = Taken(site, step.target, tag, tuple(sorted((first.rank, other.rank))), True, 1)
        return told({rank: Race(taken, (first, other), by_name_later(first.rank, came=True))})
    return None


def _asks(wait: Wait, rank: int, tag: int, group: str) -> bool:
    """Whether it waits for `rank` to take its message."""
    step = wait.record.step
    if step.op != SEND or step.message is None or step.target != group:
        return False
    return (step.message.peer, step.message.tag) == (rank, tag)
