"""What ranks called in turn with calls of another line: who called twice in a row there, or not at all, is out of step.

Of two calls that met, and differ in their root, the group alone may not tell that one rank is a round ahead. What
it called on other groups meanwhile does: whoever comes round a loop calls from one of its lines as often as from
another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.loops import is_in_a_loop_without
from rankdrill.diagnosis.calls.sequences import Parting, calls_on
from rankdrill.diagnosis.calls.turns import collectives_of
from rankdrill.diagnosis.finding import Finding, FindingKind
from rankdrill.ledger import LedgerView
from rankdrill.site import outward
from rankdrill.step import Site, Step

__all__ = ["out_of_turn_with_a_line"]

MOST_LINES = 16  # that calls of one function come from
WITNESSES = 2  # ranks at least that called from both lines in turn


def out_of_turn_with_a_line(finding: Finding, views: Sequence[LedgerView]) -> tuple[tuple[int, ...], Parting] | None:
    """The one rank of a mismatch that did not call in turn from its line and another one, as all others did, and how.

    None where not one did not, or others than that rank alone are accused.
    """
    if finding.kind is not FindingKind.ROOT:  # of sizes and types one may be wrong by itself
        return None
    sites = {site for side in finding.sides for site in side.sites if site is not None}
    if not sites or len({site.function for site in sites}) > 1 or any(view.dropped for view in views):
        return None
    made = [list(_of_functions({_outermost(site) for site in sites}, view)) for view in views]
    others = {step.site for steps in made for step in steps if step.target != finding.group} - sites
    beside = [line for line in others if line is not None and not _has_a_loop_of_its_own(line, sites)]
    if len(beside) > MOST_LINES:
        return None
    found = [odd for line in beside if (odd := _odd_one(made, sites, line)) is not None]
    if len({rank for rank, _ in found}) != 1:
        return None
    rank, twice = found[0]
    concerned = {each for side in finding.sides for each in side.ranks}
    if rank not in concerned or finding.culprits not in ((), (rank,)):
        return None
    if twice.site in sites:
        return ((rank,), Parting(FindingKind.EXTRA, twice)) if twice.target == finding.group else None
    due = _due(finding, rank, twice, views)
    return ((rank,), Parting(FindingKind.MISSING, due)) if due is not None and due.site in sites else None


def _has_a_loop_of_its_own(line: Site, sites: Collection[Site]) -> bool:
    """Whether a loop around it leaves out what it is to be in turn with: it may have its rounds."""
    return any(is_in_a_loop_without(*from_one_function(line, site)) for site in sites)


def _due(finding: Finding, rank: int, twice: Step, views: Sequence[LedgerView]) -> Step | None:
    """What the others called on the group at the turn at which `rank` made the call `twice` from another line."""
    before = 0
    for step in collectives_of(views[rank]):
        if (step.target, step.sequence) == (twice.target, twice.sequence):
            break
        before += step.target == finding.group
    others = [each for side in finding.sides for each in side.ranks if each != rank]
    return calls_on(finding.group, views[others[0]]).get(before) if others else None


def _odd_one(made: Sequence[Sequence[Step]], sites: Collection[Site], line: Site) -> tuple[int, Step] | None:
    """The one rank that called twice in a row from `sites`, or from `line`, and that second call; others in turn."""
    witnesses, found, firsts = 0, [], set()
    for rank, steps in enumerate(made):
        turns = [(step.site == line, step) for step in steps if step.site == line or step.site in sites]
        twice = [step for (before, _), (now, step) in pairwise(turns) if before == now]
        if len(twice) > 1:
            return None
        if twice:
            found.append((rank, twice[0]))
        witnesses += not twice and len(turns) > 1
        firsts |= {first for first, _ in turns[:1]}
    return found[0] if len(found) == 1 and len(firsts) == 1 and witnesses >= WITNESSES else None


def _of_functions(outermost: Collection[Site], view: LedgerView) -> Iterator[Step]:
    """The calls that come from functions of these frames, the outermost ones that the ledger knows."""
    functions = {(site.file, site.function) for site in outermost}
    for step in collectives_of(view):
        if step.site is not None and (_outermost(step.site).file, _outermost(step.site).function) in functions:
            yield step


def _outermost(site: Site) -> Site:
    *_, outermost = outward(site)
    return outermost
