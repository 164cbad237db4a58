"""Message races in words: what the receivers do with what comes first, and who sends to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.races.heard import Sent
from rankdrill.diagnosis.races.taken import Taken

__all__ = [
    "BY_LINES",
    "BY_ROUNDS",
    "BY_TURN",
    "IN_PLACES",
    "THE_LAST",
    "TO_THE_NEXT",
    "Deed",
    "Race",
    "by_name_later",
    "by_name_otherwise",
    "in_another_order",
    "told",
]


@dataclass(frozen=True)
class Deed:
    """What one rank does with what it receives, and what several do."""

    one: str
    many: str


IN_PLACES = Deed(
    "keeps what it receives in the order in which it comes", "keep what they receive in the order in which it comes"
)
BY_TURN = Deed("weighs each by its turn, whoever sent it", "weigh each by its turn, whoever sent it")
BY_LINES = Deed(
    "has a line and a name for each message, whoever sent it",
    "have a line and a name for each message, whoever sent it",
)
TOGETHER = Deed(
    "takes it to be of the same sender as what it receives from anybody beside it",
    "take it to be of the same sender as what they receive from anybody beside it",
)
TO_THE_NEXT = Deed(
    "answers whoever is the first as if it were the first in a row",
    "answer whoever is the first as if it were the first in a row",
)


BY_ROUNDS = Deed(
    "takes it to be of its round, though a sender's next may come before another one's",
    "take it to be of their round, though a sender's next may come before another one's",
)


def in_another_order(otherwise: str) -> Deed:
    """What a copy of the rank did, after *would have*."""
    return Deed(
        f"would have {otherwise}, had they come in another order",
        f"would have {otherwise}, had they come in another order",
    )


def by_name_later(sender: int, *, came: bool = False) -> Deed:
    """What follows is a receive from `sender`, whose message may be the first to come, or `came` first."""
    which = "which came first" if came else "which might have come first"
    return Deed(
        f"waits by name for the message of rank {sender} later, {which}",
        f"wait by name for the message of rank {sender} later, {which}",
    )


def by_name_otherwise(sender: int) -> Deed:
    """In all other rounds it receives from `sender` there."""
    return Deed(
        f"receives from rank {sender} there in all other rounds",
        f"receive from rank {sender} there in all other rounds",
    )


THE_LAST = Deed("goes by what comes last", "go by what comes last")


@dataclass(frozen=True)
class Race:
    """A rank does `deed` with what it received as `taken` says, and nothing orders the sends of `pair`."""

    taken: Taken
    pair: tuple[Sent, Sent]
    deed: Deed


def told(races: Mapping[int, Race]) -> Finding:
    """The finding on `races`, which are alike, by rank."""
    first = next(iter(races.values()))
    tag = words.tagged(first.taken.tag, first.taken.group, first.taken.site)
    alone = len(races) == 1
    did = f"receive{'s' if alone else ''} from anybody {tag}, and {first.deed.one if alone else first.deed.many}"
    receivers = side_of(list(races), did, [race.taken.site for race in races.values()])
    sides = (receivers, *(_senders(rank, race) for rank, race in races.items()))
    return Finding(FindingKind.RACE, f"recv on {first.taken.group!r}", "peer", sides, tuple(sorted(races)))


def _senders(rank: int, race: Race) -> Side:
    sites = {sent.rank: sent.record.step.site for sent in race.pair}
    did = f"send to rank {rank} {words.tagged(race.taken.tag, race.taken.group)}, and nothing orders the two"
    return side_of(list(sites), did, list(sites.values()))
