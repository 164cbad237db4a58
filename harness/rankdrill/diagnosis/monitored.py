"""A monitored barrier that a rank did not come to, or came to when the others had given up.

Only rank 0 of the group is told by gloo who was missing; the others, the late one too, lose their connection to rank 0
(torch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rankdrill.diagnosis.calls.conditions import with_condition
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import DEFAULT_GROUP

__all__ = ["not_passed"]

_OP = "monitored_barrier"
_NOT_PASSED = re.compile(r"\bRanks? (\d+(?:, \d+)*) failed to pass monitoredBarrier in (\d+) ms")  # gloo's own words


def not_passed(raised: Mapping[int, str], views: Mapping[int, LedgerView]) -> Finding | None:
    """Who was missing in the monitored barrier that the ranks `raised` gave up; None where none of them says it.

    `raised` are the texts of errors by rank, `views` the ledgers of all ranks. Errors name ranks of their group.
    """
    for rank, text in raised.items():
        told, call = _NOT_PASSED.search(text), views[rank].last_raised
        if told is None or call is None or call.step.op != _OP:
            continue
        members = members_in(views[rank]).get(call.step.target)
        if members is None and call.step.target == DEFAULT_GROUP:
            members = tuple(sorted(views))
        missing = [int(number) for number in told[1].split(", ")]
        if members is None or max(missing) >= len(members):
            return None
        found = _found(rank, call, [members[number] for number in missing], int(told[2]) / 1000, views)
        return with_condition(found, views)
    return None


def _found(rank: int, call: Record, missing: list[int], seconds: float, views: Mapping[int, LedgerView]) -> Finding:
    came = {one: views[one].last_raised for one in missing}
    late = {one: record for one, record in came.items() if record is not None and _is_same(record, call)}
    never = [one for one in missing if one not in late]
    sides: list[Side] = []
    if late:
        verb = "comes" if len(late) == 1 else "come"
        sides.append(
            side_of(list(late), f"{verb} too late to {call.step.call}", [at.step.site for at in late.values()])
        )
    if never:
        verb = "leaves" if len(never) == 1 else "leave"
        sides.append(side_of(never, f"{verb} out {call.step.call}", [call.step.site] * len(never)))
    sides.append(side_of([rank], f"gave it up after {seconds:g} s", [call.step.site]))
    step, kind = call.step, FindingKind.STUCK_RANK if late else FindingKind.MISSING
    return Finding(kind, step.call, "rank", tuple(sides), tuple(sorted(missing)), step.target)


def _is_same(one: Record, other: Record) -> bool:
    return (one.step.op, one.step.target, one.step.sequence) == (other.step.op, other.step.target, other.step.sequence)
