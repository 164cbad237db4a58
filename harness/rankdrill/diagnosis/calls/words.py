"""What ranks did with a collective that others did without, or the other way round, as sides of a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankdrill.diagnosis.calls.halves import other_half
from rankdrill.diagnosis.calls.naming import in_pass, named
from rankdrill.diagnosis.calls.sequences import Parting, calls_on
from rankdrill.diagnosis.finding import FindingKind, Side, side_of
from rankdrill.diagnosis.waits import Wait, name_ranks
from rankdrill.ledger import LedgerView
from rankdrill.step import Site, Step

__all__ = ["at_odds", "origin", "returned_after", "waiting_in"]


def origin(
    ranks: Sequence[int],
    found: Parting,
    view: LedgerView,
    own: LedgerView | None = None,
    *,
    out_of_turn: bool = False,
) -> Side:
    """What `ranks` did; `view` is the ledger of one who made the call, `own` that of one of `ranks`, and `out_of_turn`
    says that all made it.
    """
    leave, make = ("leaves", "makes") if len(ranks) == 1 else ("leave", "make")
    call, extra = f"{named(found.call)}{in_pass(found.call, view)}", found.kind is FindingKind.EXTRA
    did = f"{make} one call more, {call}" if extra else f"{leave} out {call}"
    did += _shifted(found, view, own, many=len(ranks) > 1)
    if out_of_turn:
        did = f"{make} {call} too {'early' if extra else 'late'}"
    site = found.call.site
    if own is not None and not extra and not out_of_turn:
        site = _used_to_call(found.call, view, own)
    return side_of(ranks, did, [site] * len(ranks))


def at_odds(made_it: Sequence[int], without: Sequence[int], call: Step) -> Side:
    """That these made a call and those did not, where nobody can say who is right."""
    make, leave = ("make" if len(made_it) > 1 else "makes"), ("leave" if len(without) > 1 else "leaves")
    did = f"{make} {named(call)}, which {name_ranks(without)} {leave} out, if it is not one too many"
    return side_of(made_it, did, [call.site] * len(made_it))


def _shifted(found: Parting, view: LedgerView, own: LedgerView | None, *, many: bool) -> str:
    """By how much their numbers are apart, where they went on for a while and it is one: its #3 is the others' #4.

    Where it is more, how many.
    """
    if found.times > 1:
        return f" (the first of {found.times} there)"
    number, extra = found.call.sequence, found.kind is FindingKind.EXTRA
    made = calls_on(found.call.target, view)
    if extra:
        return f" ({'their' if many else 'its'} #{number + 1} is the others' #{number})" if number + 1 in made else ""
    mine = calls_on(found.call.target, own) if own is not None else {}
    *on, _ = [at for at in sorted(mine) if at >= number and at + 1 in made] or [number]  # at the last one it shows
    if not on or any(_where(mine[at]) != _where(made[at + 1]) for at in on):
        return ""
    return f" ({'their' if many else 'its'} #{number} is the others' #{number + 1})"


def _where(step: Step) -> tuple[str, tuple[str, int] | None]:
    return step.op, step.site.place if step.site is not None else None


def _used_to_call(step: Step, view: LedgerView, own: LedgerView) -> Site | None:
    """Where one that left `step` out made that call before: the line of its own that goes with the others'; failing
    that, where it would make it by its rank, if it has never been where they are.
    """
    theirs, mine = calls_on(step.target, view), calls_on(step.target, own)
    before = [mine[at] for at, call in theirs.items() if at < step.sequence and at in mine and call.site == step.site]
    sites = {call.site for call in before if call.op == step.op}
    if len(sites) == 1:
        return sites.pop()
    if step.site is None or any(call.site == step.site for call in mine.values()):
        return step.site
    return other_half(step.site) or step.site


def waiting_in(calls: Mapping[int, Step], waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Side:
    ranks = [rank for rank, call in calls.items() if rank in waits and _is_in(waits[rank], call)]
    step = calls[ranks[0]]
    did = f"{'waits' if len(ranks) == 1 else 'wait'} in {named(step)}{in_pass(step, views[ranks[0]])}"
    return side_of(ranks, did, [calls[rank].site for rank in ranks])


def returned_after(ranks: Sequence[int], group: str, views: Sequence[LedgerView]) -> list[Side]:
    """After which call each of them returned."""
    by_last: dict[str, list[int]] = {}
    last: dict[int, Step | None] = {}
    for rank in ranks:
        calls = calls_on(group, views[rank])
        last[rank] = step = calls[max(calls)] if calls else None
        told = f"after {named(step)}{in_pass(step, views[rank])}" if step else f"without a collective on {group!r}"
        by_last.setdefault(told, []).append(rank)
    return [_returned(those, told, last) for told, those in by_last.items()]


def _returned(ranks: Sequence[int], told: str, last: Mapping[int, Step | None]) -> Side:
    steps = [last[rank] for rank in ranks]
    return side_of(ranks, f"returned {told}", [step.site if step is not None else None for step in steps])


def _is_in(wait: Wait, call: Step) -> bool:
    step = wait.record.step
    return (step.target, step.sequence) == (call.target, call.sequence)
