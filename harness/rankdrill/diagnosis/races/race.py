"""Message races, told where both speak clearly: what ranks did, and what the receiver's source does with it.

Ranks did this: several sent to one that receives from anybody, not all the same, and nothing orders two of the sends.
The source says this: the rank that sent is dropped, and what was received is kept in the order in which it came, or
answered in a row, or only the last of it counts. Without source to read, or where that does anything else with the
messages, nothing is said: sums, the largest, sorted results and messages that say whose they are are as right as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.races.answers import answers_in_a_row
from rankdrill.diagnosis.races.last_word import counts_the_last
from rankdrill.diagnosis.races.order import Sent, destinations, unordered
from rankdrill.diagnosis.races.places import kept_in_order
from rankdrill.diagnosis.races.reception import reception_at
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.ledger import LedgerView

__all__ = ["message_race"]

_IN_PLACES = "keeps what it receives in the order in which it comes"
_TO_THE_NEXT = "answers the first to come as if it were the first in a row"
_THE_LAST = "goes by the last to come"


def message_race(taken: Mapping[int, Sequence[Taken]], views: Mapping[int, LedgerView]) -> Finding | None:
    """The first race of those that were `taken` from anybody, by rank, and what else raced in the same way there."""
    races: dict[int, tuple[Taken, tuple[Sent, Sent], str]] = {}
    for rank, each in sorted(taken.items()):
        for one in each:
            did = _depends_on_order(rank, one, views[rank]) if one.differ else None
            pair = unordered(rank, one, views) if did is not None else None
            if did is not None and pair is not None:
                races.setdefault(rank, (one, pair, did))
    if not races:
        return None
    first, _, did = next(iter(races.values()))
    alike = {rank: race for rank, race in races.items() if race[0].site == first.site and race[2] == did}
    return Finding(FindingKind.RACE, f"recv on {first.group!r}", "peer", tuple(_sides(alike)), tuple(sorted(alike)))


def _depends_on_order(rank: int, taken: Taken, view: LedgerView) -> str | None:
    """What is done with messages that depends on which came first; None where nothing is, or nobody can say."""
    reception = reception_at(taken.site)
    if reception is None:
        return None
    if kept_in_order(reception, taken.elements):
        return _IN_PLACES
    if counts_the_last(reception, rank):
        return _THE_LAST
    line = answers_in_a_row(reception)
    # Who hands messages on to others than those that sent them may do so in whatever order.
    answered = line is not None and destinations(rank, line, taken, view) == set(taken.senders)
    return _TO_THE_NEXT if answered else None


def _sides(races: Mapping[int, tuple[Taken, tuple[Sent, Sent], str]]) -> Sequence[Side]:
    taken, _, did = next(iter(races.values()))
    tag = words.tagged(taken.tag, taken.group, taken.site)
    does = f"receive{'s' if len(races) == 1 else ''} from anybody {tag}, and {did if len(races) == 1 else _many(did)}"
    receivers = side_of(list(races), does, [each.site for each, _, _ in races.values()])
    senders = [_senders(rank, taken, pair) for rank, (taken, pair, _) in races.items()]
    return [receivers, *senders]


def _many(did: str) -> str:
    verb, _, rest = did.partition(" ")
    return f"{'go' if verb == 'goes' else verb.removesuffix('s')} {rest}".replace("it receives", "they receive")


def _senders(rank: int, taken: Taken, pair: tuple[Sent, Sent]) -> Side:
    sites = {sent.rank: sent.record.step.site for sent in pair}
    did = f"send to rank {rank} {words.tagged(taken.tag, taken.group)}, and nothing orders the two"
    return side_of(list(sites), did, list(sites.values()))
