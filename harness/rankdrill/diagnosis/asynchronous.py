"""Asynchronous calls that nobody waited for, and memory that was touched while such a call worked on it.

Here each rank is at fault for itself: what several did alike is one finding, and all of them are its culprits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from rankdrill.diagnosis.calls.past_torch import at_its_line
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, State
from rankdrill.step import NEVER_WAITED, NO_SEQUENCE, RECV, SEND, Kind, Site, Step

if TYPE_CHECKING:  # it imports torch, which a controller does without
    from rankdrill.boundary.handles import Access

__all__ = [
    "EACH_FOR_ITSELF",
    "Unwaited",
    "each_for_itself",
    "hazard_on",
    "leak_on",
    "lost_message",
    "stalled_by_loss",
    "unwaited",
]

MOST_TOLD = 4  # sides of one finding
_MESSAGES = frozenset({"isend", "irecv"})
EACH_FOR_ITSELF = frozenset(
    {FindingKind.REQUEST_LEAK, FindingKind.INPUT_HAZARD, FindingKind.LAYOUT, FindingKind.LEAKED_GROUP}
)
"""What one rank can do wrong by itself; where it is a call that they differ in, the finding has its number."""


@dataclass(frozen=True, slots=True)
class Unwaited:
    """Calls from one line that nobody waited for: the first of them, and how many more there are.

    `of_all` are the ranks of which one would be enough to wait; by default each has to for itself.
    """

    call: str
    site: Site | None
    more: int = 0
    of_all: tuple[int, ...] = ()


def unwaited(steps: Iterable[tuple[Step, tuple[int, ...]]]) -> tuple[Unwaited, ...]:
    """The calls of one rank, each with the ranks of which one is to wait, line by line."""
    by_line: dict[tuple[Site | None, tuple[int, ...]], list[Step]] = {}
    for step, of_all in steps:
        by_line.setdefault((step.site, of_all), []).append(step)
    lines = islice(by_line.items(), MOST_TOLD)
    return tuple(Unwaited(_name(of_line[0]), site, len(of_line) - 1, of_all) for (site, of_all), of_line in lines)


def leak_on(ranks: Mapping[int, Sequence[Unwaited]]) -> Finding | None:
    """What is wrong where ranks have come to their end with calls that nobody waited for; None where none has."""
    return each_for_itself(
        Finding(FindingKind.REQUEST_LEAK, one.call, "request", (_leak(rank, one),), (rank,))
        for rank, left in sorted(ranks.items())
        for one in left
        if all(any(other.call == one.call for other in ranks.get(member, ())) for member in one.of_all)
    )


def lost_message(waits: Mapping[int, Wait], ledgers: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where ranks wait for messages whose other half was given up; None where none does.

    `ledgers` are those of all ranks, by rank.
    """
    return each_for_itself(
        Finding(FindingKind.REQUEST_LEAK, one.call, "request", (_leak(other, one), _waits(rank, wait)), (other,))
        for rank, wait in waits.items()
        for peer in wait.missing
        if (lost := _given_up(ledgers[peer], wait.record.step))
        for other, steps in _given_up_alike(peer, lost, ledgers, wait.record.step)
        for one in unwaited((step, ()) for step in steps)
    )


def stalled_by_loss(waits: Mapping[int, Wait], ledgers: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where all have come to the call that they wait in, and it does not end; None if nobody can say.

    A receive that was given up leaves what was sent to it in gloo's way, and a send the receive that it was for.
    """
    if between := _stalled_between_two(waits, ledgers):
        return between
    if not waits or any(wait.missing or wait.record.step.message is not None for wait in waits.values()):
        return None
    return each_for_itself(
        Finding(FindingKind.REQUEST_LEAK, one.call, "request", (_leak(rank, one), *_in_it(waits)), (rank,))
        for rank, ledger in enumerate(ledgers)
        for one in unwaited((step, ()) for step in _lost(ledger) if step.op in (SEND, RECV))
    )


def _stalled_between_two(waits: Mapping[int, Wait], ledgers: Sequence[LedgerView]) -> Finding | None:
    """The same of one that sends and one that receives just that, after one of them gave up a message of the two."""
    return each_for_itself(
        Finding(FindingKind.REQUEST_LEAK, one.call, "request", (_leak(rank, one), _in_vain(rank, wait)), (rank,))
        for rank, wait in waits.items()
        if _meets_its_other_half(rank, wait, waits)
        for one in unwaited((step, ()) for step in _lost(ledgers[rank]) if _is_same_way(step, wait.record.step))
    )


def _in_vain(rank: int, wait: Wait) -> Side:
    return side_of([rank], f"{words.waits(wait.record)}, in vain since then", [wait.record.step.site])


def _meets_its_other_half(rank: int, wait: Wait, waits: Mapping[int, Wait]) -> bool:
    step = wait.record.step
    message = step.message
    if message is None or message.peer not in waits:
        return False
    other = waits[message.peer].record.step
    return (
        other.message is not None
        and {step.op, other.op} == {SEND, RECV}
        and (other.message.peer, other.message.tag, other.target) == (rank, message.tag, step.target)
    )


def _is_same_way(given_up: Step, awaited: Step) -> bool:
    """Whether one is a message from the same rank to the same rank as the other."""
    one, other = given_up.message, awaited.message
    if one is None or other is None:
        return False
    return (given_up.op, given_up.target, one.peer) == (awaited.op, awaited.target, other.peer)


def _in_it(waits: Mapping[int, Wait]) -> list[Side]:
    alike: dict[str, dict[int, Site | None]] = {}
    for rank, wait in waits.items():
        alike.setdefault(wait.record.step.call, {})[rank] = wait.record.step.site
    are = {call: "is" if len(sites) == 1 else "are" for call, sites in alike.items()}
    return [
        side_of(list(sites), f"{are[call]} in {call}, which does not end", list(sites.values()))
        for call, sites in alike.items()
    ]


def _lost(ledger: LedgerView) -> list[Step]:
    """What this rank gave up."""
    records = ledger.where(lambda kind, state: kind is Kind.COLLECTIVE and state is State.RAISED)
    return [record.step for record in records if record.error == NEVER_WAITED]


def _given_up(ledger: LedgerView, awaited: Step) -> list[Step]:
    """The messages that this rank gave up, and that `awaited` is the other half of."""
    half = {"send": "recv", "recv": "send"}.get(awaited.op)
    return [step for step in _lost(ledger) if step.op == half and step.target == awaited.target]


def _given_up_alike(
    peer: int, lost: Sequence[Step], ledgers: Sequence[LedgerView], awaited: Step
) -> Iterator[tuple[int, Sequence[Step]]]:
    """`peer` with what it has `lost`, and others with what they gave up from its lines: theirs got there by chance."""
    yield peer, lost
    sites = {step.site for step in lost}
    for rank, ledger in enumerate(ledgers):
        if rank != peer:
            yield rank, [step for step in _given_up(ledger, awaited) if step.site in sites]


def _waits(rank: int, wait: Wait) -> Side:
    step = wait.record.step
    return side_of([rank], f"waited for it in {step.op} on {step.target!r}", [step.site])


def hazard_on(rank: int, step: Step, access: Access, *, lost: bool) -> Finding:
    """What is wrong where `rank` accesses memory that `step` works on; `lost` says that nobody can wait for it."""
    call = _name(step)
    done = side_of([rank], f"{access.use} the {access.role} of {call} before that was waited for", [access.site])
    if lost:  # this had to show, and is not what is to be mended
        leak = _leak(rank, Unwaited(call, step.site))
        return Finding(FindingKind.REQUEST_LEAK, call, "request", (leak, done), (rank,))
    issued = side_of([rank], f"issued {call}", [step.site])
    return Finding(FindingKind.INPUT_HAZARD, call, access.role, (done, issued), (rank,))


def each_for_itself(findings: Iterable[Finding]) -> Finding | None:
    """One finding for what ranks did wrong each by itself; None where `findings` has nothing of the kind.

    Of one kind only: a rank that stops over one mistake says nothing of what else is wrong in it.
    """
    own = [finding for finding in findings if finding.kind in EACH_FOR_ITSELF and finding.number == NO_SEQUENCE]
    if not own:
        return None
    first = own[0]
    alike = [at_its_line(finding) for finding in own if finding.kind is first.kind]
    culprits = tuple(sorted({rank for finding in alike for rank in finding.culprits}))
    sides = _united([finding.sides[0] for finding in alike]) + _united(
        [side for finding in alike for side in finding.sides[1:]]
    )
    return Finding(first.kind, first.step, first.argument, tuple(sides), culprits)


def _united(sides: Iterable[Side]) -> list[Side]:
    """Ranks that did the same become one side; what one rank did at two lines stays two."""
    by_deed: dict[tuple[str, int], dict[int, Site | None]] = {}
    for side in sides:
        for rank, site in zip(side.ranks, side.sites, strict=True):
            again = 0
            while by_deed.get((side.did, again), {}).get(rank, site) != site:
                again += 1
            by_deed.setdefault((side.did, again), {})[rank] = site
    told = islice(by_deed.items(), MOST_TOLD)
    return [side_of(list(deeds), did, list(deeds.values())) for (did, _), deeds in told]


def _leak(rank: int, one: Unwaited) -> Side:
    more = f", nor for {one.more} more issued there" if one.more else ""
    return side_of([rank], f"never waited for {one.call}{more}", [one.site])


def _name(step: Step) -> str:
    """``all_reduce #3 on 'default'``; a message, which nobody counts, by what the user called."""
    if step.sequence != NO_SEQUENCE:
        return step.call
    via = step.site.via if step.site is not None else ""
    return f"{via if via in _MESSAGES else step.op} on {step.target!r}"
