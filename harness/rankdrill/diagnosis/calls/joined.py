"""Calls within torch's `Join` that it does not make for ranks which are through with their data.

Who has joined makes, in its `JoinHook`, the calls of what `Join` was given, a DistributedDataParallel say, as whoever
has data still makes them. An `all_reduce` of the loss, or a ZeroRedundancyOptimizer that it was not given, meets those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.sequences import calls_on
from rankdrill.diagnosis.finding import JOIN, Finding, FindingKind, side_of
from rankdrill.ledger import LedgerView
from rankdrill.site import outward
from rankdrill.step import DDP_BUCKET, NO_SEQUENCE, Step

__all__ = ["not_shadowed"]

_HOOK = "JoinHook."
_HOOKS = frozenset({"main_hook", "post_hook"})
_OF_HOOKS = {
    "DDPJoinHook.": ("DistributedDataParallel", DDP_BUCKET),
    "_ZeROJoinHook.": ("ZeroRedundancyOptimizer",),
}
"""Whose calls a hook makes, as call sites have them."""


def not_shadowed(noticed: Finding, views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where the ranks of `noticed` differ after some have joined: the first call that these do not make.

    Nobody can say where hooks of the user's own make calls, too.
    """
    if noticed.number == NO_SEQUENCE:
        return None
    calls = {rank: calls_on(noticed.group, view) for rank, view in enumerate(views)}
    begun = [number for made in calls.values() for number, step in made.items() if _HOOK in _via(step)]
    sites = {step.site for made in calls.values() for step in made.values() if step.site is not None}
    if not begun or any(line.function in _HOOKS for site in sites for line in outward(site)):
        return None
    made_for = _made_for(calls)
    places = {site.place for site in sites if _HOOK in site.via}
    for number in range(min(begun), noticed.number + 1):
        there = {rank: made[number] for rank, made in calls.items() if number in made}
        joined = [rank for rank, step in there.items() if step.site is not None and step.site.place in places]
        others = [rank for rank in there if rank not in joined and not _via(there[rank]).startswith(made_for)]
        if joined and others:
            return _told(noticed, number, joined, others, there)
    return None


def _via(step: Step) -> str:
    return step.site.via if step.site is not None else ""


def _made_for(calls: Mapping[int, Mapping[int, Step]]) -> tuple[str, ...]:
    """What the hooks that were seen make calls for."""
    seen = {_via(step) for made in calls.values() for step in made.values()}
    return tuple(name for hook, names in _OF_HOOKS.items() if any(hook in via for via in seen) for name in names)


def _told(
    noticed: Finding, number: int, joined: Sequence[int], others: Sequence[int], there: Mapping[int, Step]
) -> Finding:
    call = there[others[0]]
    makes = "makes" if len(others) == 1 else "make"
    did = f"{makes} {named(call)} within Join, which does not make it for who has joined"
    have = "has joined, and is" if len(joined) == 1 else "have joined, and are"
    sides = (
        side_of(others, did, [there[rank].site for rank in others]),
        side_of(joined, f"{have} in {named(there[joined[0]])}", [there[rank].site for rank in joined]),
    )
    return Finding(FindingKind.MISSING, named(call), JOIN, sides, (), noticed.group, number)
