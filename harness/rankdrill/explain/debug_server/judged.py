"""Ranks judged by their stacks alone, at several moments: who is in a call, and who is in none.

Stacks tell neither groups nor which call of a line it is. So nobody is accused who moves, and nothing is certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankdrill.diagnosis import Confidence, Finding, FindingKind, Side, name_ranks
from rankdrill.diagnosis.finding import side_of
from rankdrill.explain.debug_server.stacks import Stack
from rankdrill.explain.explanation import Cause
from rankdrill.explain.flight.words import either

__all__ = ["Judged", "Moment", "judge"]


@dataclass(frozen=True)
class Moment:
    """The stacks of all ranks at one time."""

    at_ns: int
    stacks: Mapping[int, Stack]


@dataclass(frozen=True)
class Judged:
    """The causes, what else fits, and who waits because of them."""

    causes: tuple[Cause, ...] = ()
    fits: tuple[str, ...] = ()
    victims: tuple[int, ...] = ()


def judge(moments: Sequence[Moment]) -> Judged:
    """What the stacks of these `moments`, the newest one last, show."""
    now = moments[-1].stacks
    calls: dict[tuple[str, str], list[int]] = {}
    for rank, stack in sorted(now.items()):
        if stack.call:
            calls.setdefault((stack.call, str(stack.site)), []).append(rank)
    if not calls:
        return Judged()
    moved = sorted(rank for rank, stack in now.items() if _moved(rank, stack, moments))
    if moved:
        told = f"{name_ranks(moved)} {either(moved, 'was', 'were')} elsewhere shortly before"
        return Judged(fits=(f"{told}: {either(moved, 'it may be', 'they may be')} late, and nobody need hang",))
    lost = [rank for rank, stack in sorted(now.items()) if stack.error]
    idle = [rank for rank, stack in sorted(now.items()) if not stack.call and not stack.error]
    if lost:
        return _absent(FindingKind.LOST_RANK, lost, either(lost, "does not answer", "do not answer"), calls, moments)
    if idle:
        (call, _), _ = max(calls.items(), key=lambda each: len(each[1]))
        return _absent(FindingKind.MISSING, idle, f"{either(idle, 'is', 'are')} not in {call}", calls, moments)
    return _apart(calls, moments)


def _moved(rank: int, stack: Stack, moments: Sequence[Moment]) -> bool:
    before = moments[-2].stacks.get(rank) if len(moments) > 1 else None
    return before is not None and before.text != stack.text and not stack.error


def _absent(
    kind: FindingKind,
    ranks: Sequence[int],
    did: str,
    calls: Mapping[tuple[str, str], Sequence[int]],
    moments: Sequence[Moment],
) -> Judged:
    now = moments[-1].stacks
    waiting = sorted(rank for there in calls.values() for rank in there)
    few = len(ranks) < len(waiting)
    (call, _), _ = max(calls.items(), key=lambda each: len(each[1]))
    away = side_of(ranks, did, [now[rank].site for rank in ranks])
    finding = Finding(kind, call, "", (away, *_sides(calls, now)), tuple(ranks) if few else ())
    sure = few and len(moments) > 1 and len(calls) == 1
    cause = Cause(finding, Confidence.LIKELY if sure else Confidence.POSSIBLE, tuple(_why(moments)))
    still = f"{name_ranks(ranks)} may still be on {either(ranks, 'its', 'their')} way: computing, loading, or in a wait"
    fits = (f"{still} that is no function of torch.distributed",) if kind is FindingKind.MISSING else ()
    return Judged((cause,), fits, tuple(waiting))


def _apart(calls: Mapping[tuple[str, str], Sequence[int]], moments: Sequence[Moment]) -> Judged:
    """All ranks are in calls."""
    if len(calls) == 1:
        ((call, _), ranks) = next(iter(calls.items()))
        return Judged(
            fits=(f"{name_ranks(ranks)} are in {call}, all of the same line: which rank holds it up is not told",)
        )
    ordered = sorted(calls.items(), key=lambda each: len(each[1]))
    few = sorted(rank for _, ranks in ordered[:-1] for rank in ranks)
    (call, _), most = ordered[-1]
    culprits = tuple(few) if len(few) < len(most) and len(calls) == 2 else ()
    finding = Finding(FindingKind.CALL_ORDERING, call, "", tuple(_sides(dict(ordered), moments[-1].stacks)), culprits)
    fits = ("these calls may be on different groups, and each wait for somebody else: stacks do not tell",)
    return Judged((Cause(finding, Confidence.POSSIBLE, tuple(_why(moments))),), fits, tuple(most) if culprits else ())


def _sides(calls: Mapping[tuple[str, str], Sequence[int]], now: Mapping[int, Stack]) -> list[Side]:
    return [
        side_of(ranks, f"{either(ranks, 'is', 'are')} in {call}", [now[rank].site for rank in ranks])
        for (call, _), ranks in calls.items()
    ]


def _why(moments: Sequence[Moment]) -> list[str]:
    if len(moments) == 1:
        return ["of one moment only: whether they move is not known"]
    same = [moments[-1]]
    for moment in reversed(moments[:-1]):
        if any(moment.stacks.get(rank, stack).text != stack.text for rank, stack in moments[-1].stacks.items()):
            break
        same.append(moment)
    lasted = (same[0].at_ns - same[-1].at_ns) / 1e9
    return [f"all stacks were the same at {len(same)} moments, over {lasted:.0f} s"]
