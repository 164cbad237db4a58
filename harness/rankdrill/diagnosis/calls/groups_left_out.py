"""A group that some of its members make, and wait in for the others: whoever left it out, or made one more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from rankdrill.diagnosis.calls.common_caller import come_round, from_one_function
from rankdrill.diagnosis.calls.group_names import under_other_names
from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.waits import Wait
from rankdrill.step import MAKES_GROUP, Step

__all__ = ["group_left_out", "makes_group", "went_past_group"]


def makes_group(wait: Wait) -> bool:
    """Whether the rank waits for others to make a group with it."""
    return wait.record.step.op in MAKES_GROUP


def group_left_out(waits: Mapping[int, Wait], returned: Collection[int]) -> Finding | None:
    """What is wrong where ranks wait for ever in ``new_group``, or ``init_process_group``; None where none does."""
    apart = under_other_names(waits)
    making = [wait for rank, wait in waits.items() if makes_group(wait) and wait.missing and rank not in apart]
    if not making:
        return None
    if (divided := _of_other_members(making)) is not None:
        return divided
    step = min(making, key=lambda wait: wait.record.begin_ns).record.step
    there = {wait.rank: wait for wait in making if _same(wait.record.step, step)}
    away = sorted({rank for wait in there.values() for rank in wait.missing})
    if not all(rank in returned or rank in waits for rank in away):
        return None  # one of them died, or raised, and explains more
    waiting = side_of(
        list(there),
        f"{'waits' if len(there) == 1 else 'wait'} in {_told(step)}",
        [wait.record.step.site for wait in there.values()],
    )
    elsewhere = [_elsewhere(waits[rank]) for rank in away if rank in waits]
    if len(away) > len(there):
        did = f"{'makes' if len(there) == 1 else 'make'} one group more, {_told(step)}"
        more = side_of(list(there), did, list(waiting.sites))
        return Finding(FindingKind.EXTRA, step.call, "members", (more, *elsewhere), tuple(sorted(there)))
    did = f"{'leaves' if len(away) == 1 else 'leave'} out {_told(step)}"
    left_out = side_of(away, did, [step.site] * len(away))
    culprits = tuple(away) if len(away) < len(there) else ()
    return Finding(FindingKind.MISSING, step.call, "members", (left_out, waiting, *elsewhere), culprits)


def _of_other_members(making: Collection[Wait]) -> Finding | None:
    """What is wrong where ranks that wait for each other make a group of other members each, at one line."""
    by_members: dict[str, list[Wait]] = {}
    for wait in making:
        by_members.setdefault(wait.record.step.fingerprint, []).append(wait)
    lines = {wait.record.step.site.place if wait.record.step.site is not None else None for wait in making}
    ranks = {wait.rank for wait in making}
    if len(by_members) < 2 or len(lines) > 1 or None in lines or any(ranks.isdisjoint(w.missing) for w in making):
        return None
    ordered = sorted(by_members.values(), key=len)
    sides = tuple(
        side_of(
            [wait.rank for wait in waits],
            f"{'makes' if len(waits) == 1 else 'make'} {_told(waits[0].record.step)}",
            [wait.record.step.site for wait in waits],
        )
        for waits in ordered
    )
    culprits = sides[0].ranks if len(ordered) == 2 and len(ordered[0]) < len(ordered[1]) else ()
    return Finding(FindingKind.GROUP, ordered[-1][0].record.step.call, "members", sides, culprits)


def _same(one: Step, other: Step) -> bool:
    return (one.sequence, one.fingerprint) == (other.sequence, other.fingerprint)


def _told(step: Step) -> str:
    return f"{step.call} ({step.fingerprint})"


def _elsewhere(wait: Wait) -> Side:
    step = wait.record.step
    did = words.waits(wait.record) if step.message is not None else f"waits in {named(step)}"
    return side_of([wait.rank], did, [step.site])


def went_past_group(finding: Finding) -> Finding:
    """`finding`, that a group was made of other members, unless it was the next one: the culprits went past the first.

    So it is where they come from further down the same code, and from outside of any loop around both. All ranks have
    to make each group: also where as many have made it, who is further down is who went past it.
    """
    if len(finding.sides) != 2:
        return finding
    few, most = finding.sides
    if not finding.culprits and _lies_further_down(most, few):
        few, most = most, few
    came, due = few.sites[0], most.sites[0]
    alike = len(set(few.sites)) == len(set(most.sites)) == 1
    if came is None or due is None or not alike:
        return finding
    at_due, at_came = from_one_function(due, came)
    if order_of(at_due, at_came) is not Order.AFTER or come_round(at_due, at_came):
        return finding
    did = f"{'leaves' if len(few.ranks) == 1 else 'leave'} out {finding.step}"
    left_out = side_of(few.ranks, did, [due] * len(few.ranks))
    return replace(finding, kind=FindingKind.MISSING, sides=(left_out, few, most), culprits=few.ranks)


def _lies_further_down(one: Side, other: Side) -> bool:
    here, there = one.sites[0], other.sites[0]
    return here is not None and there is not None and order_of(*from_one_function(there, here)) is Order.AFTER
