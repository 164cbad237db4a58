"""A job that hangs before its first group is there: who has not come to make it."""

from __future__ import annotations

import linecache
from collections.abc import Sequence

from rankdrill.diagnosis import Confidence, Finding, FindingKind, Side, name_ranks
from rankdrill.diagnosis.finding import side_of
from rankdrill.explain.explanation import Cause
from rankdrill.explain.recording.evidence import Evidence
from rankdrill.explain.recording.standing import How, Standing
from rankdrill.step import Site

__all__ = ["all_there", "not_met"]

LONG_S = 5.0  # in which ranks that were started together meet
_MAKES = "init_process_group"


def not_met(evidence: Evidence, standings: Sequence[Standing]) -> Cause | None:
    """Who is not where all others make the default group; None where some rank has one, or nobody is known to wait."""
    here = _without_group(evidence, standings)
    waiting = [each for each in here if _makes_the_group(each.site)]
    elsewhere = [each for each in here if each not in waiting]
    if not waiting or not (elsewhere or evidence.missing):
        return None
    sides = [Side((each.rank,), each.told, (each.site,)) for each in elsewhere]
    if evidence.missing:
        nowhere = [None] * len(evidence.missing)
        sides.append(side_of(list(evidence.missing), "recorded nothing", nowhere))
    culprits = tuple(sorted({rank for side in sides for rank in side.ranks}))
    verb = "waits" if len(waiting) == 1 else "wait"
    did = f"{verb} in {_MAKES} for {name_ranks(culprits)}"
    sides.append(side_of([each.rank for each in waiting], did, [each.site for each in waiting]))
    kind = FindingKind.STUCK_RANK if elsewhere else FindingKind.LOST_RANK
    why = "no rank has a process group yet, and all others are where it is made"
    return Cause(Finding(kind, _MAKES, "rank", tuple(sides), culprits), Confidence.POSSIBLE, (why,))


def all_there(evidence: Evidence, standings: Sequence[Standing]) -> list[str]:
    """What may be wrong where all ranks have long been where they make the default group."""
    here = _without_group(evidence, standings)
    if not here or evidence.missing or not all(_makes_the_group(each.site) for each in here):
        return []
    launcher = evidence.ranks[here[0].rank].recorded.launcher
    address = ":".join(filter(None, (launcher.get("MASTER_ADDR"), launcher.get("MASTER_PORT"))))
    where = f" at {address}" if address else ""
    return [
        f"all ranks are in {_MAKES}, and do not meet{where}: can each of them reach rank 0 there, and does it listen?"
    ]


def _without_group(evidence: Evidence, standings: Sequence[Standing]) -> list[Standing]:
    """Those who have left a record, if no rank has a group, and all have had the time to make it; else nobody."""
    here = [each for each in standings if each.rank in evidence.ranks]
    if any(evidence.ranks[each.rank].recorded.groups or each.how is not How.RUNS for each in here):
        return []
    began = [evidence.ranks[each.rank].recorded.told_ns + evidence.ranks[each.rank].shift_ns for each in here]
    return here if began and evidence.now_ns - max(began) >= LONG_S * 1e9 else []


def _makes_the_group(site: Site | None) -> bool:
    return site is not None and _MAKES in linecache.getline(site.file, site.line)
