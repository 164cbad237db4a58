"""Ranks that all came to their end, and not all of them made the same groups on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankdrill.diagnosis.calls.conditions import with_condition
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import DEFAULT_GROUP, NEW_GROUP, Kind, Site

__all__ = ["unequal_groups"]


def unequal_groups(counts: Mapping[int, int], views: Mapping[int, LedgerView]) -> Finding | None:
    """What is wrong where ranks have not made equally many groups; None where they have.

    `counts` are those of each rank since its default group was made, `views` show the newest of these steps.
    """
    by_count: dict[int, list[int]] = {}
    for rank, count in counts.items():
        by_count.setdefault(count, []).append(rank)
    if len(by_count) < 2:
        return None
    number = min(by_count)
    *others, most = sorted(by_count, key=lambda count: (len(by_count[count]), count))
    majority = 2 * len(by_count[most]) > len(counts)
    if not majority and len(by_count) == 2 and _made_by_its_members(counts, views, number):
        others, most = [number], max(by_count)  # all have to make a group, whoever is in it
        majority = True
    odd = tuple(sorted(rank for count in others for rank in by_count[count]))
    calls = {rank: _made(views[rank], number - count) for rank, count in counts.items() if count > number}
    made = _with(calls, number)
    extra = majority and most == number
    without = _without(by_count[number], number, None if extra else made.sites[0], majority=majority and not extra)
    sides = [made, without] if extra else [without, made]
    kind = FindingKind.EXTRA if extra else FindingKind.MISSING
    found = Finding(kind, _call(number), "members", tuple(sides), odd if majority else ())
    return with_condition(found, views)


def _made_by_its_members(counts: Mapping[int, int], views: Mapping[int, LedgerView], number: int) -> bool:
    """Whether several made the group who are its members, and nobody else is."""
    made = {rank: _made(views[rank], number - count) for rank, count in counts.items() if count > number}
    shown = {record.step.fingerprint if record is not None else "" for record in made.values()}
    if any(_times_made(shown, views[rank]) > 1 for rank in made):
        return False  # one that all have made, once more
    return len(made) > 1 and shown == {f"ranks={','.join(map(str, sorted(made)))}"}


def _times_made(shown: set[str], view: LedgerView) -> int:
    groups = view.where(lambda kind, state: kind is Kind.GROUP and state is State.ENDED)
    return sum(record.step.op == NEW_GROUP and record.step.fingerprint in shown for record in groups)


def _call(number: int) -> str:
    return f"{NEW_GROUP} #{number} on {DEFAULT_GROUP!r}"


def _made(view: LedgerView, place: int) -> Record | None:
    """The group made at `place` from the end; None where the ledger does not reach back to it."""
    records = [
        record
        for record in view.where(lambda kind, state: kind is Kind.GROUP and state is State.ENDED)
        if record.step.op == NEW_GROUP
    ]
    return records[place] if -place <= len(records) else None


def _without(ranks: Sequence[int], number: int, site: Site | None, *, majority: bool) -> Side:
    """Whoever left it out never was at the `site` where others made it, and it is theirs nevertheless."""
    one = len(ranks) == 1
    did = f"{'leaves' if one else 'leave'} out" if majority else f"{'ends' if one else 'end'} without"
    return side_of(ranks, f"{did} {_call(number)}", [site] * len(ranks))


def _with(calls: Mapping[int, Record | None], number: int) -> Side:
    ranks = sorted(calls)
    shown = next((record.step.fingerprint for rank in ranks if (record := calls[rank]) is not None), "")
    verb = "calls" if len(ranks) == 1 else "call"
    did = f"{verb} {_call(number)}" + (f" ({shown})" if shown else "")
    return side_of(ranks, did, [record.step.site if record is not None else None for record in map(calls.get, ranks)])
