"""Merging: what N ranks did in one phase becomes one result, the culprit first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rankdrill.diagnosis import FindingKind, name_ranks
from rankdrill.errors import (
    ContractBroken,
    FaultNotFired,
    RankDied,
    RanksDisagree,
    RankStuck,
    TemplateDied,
    WorldError,
)
from rankdrill.faults import struck
from rankdrill.plugin.commands import When
from rankdrill.plugin.ends import Ended, Ends, PhaseEnd, RankTestError
from rankdrill.plugin.shown import MergedFailure
from rankdrill.worlds import Outcome, RankOutcome, Status
from rankdrill.worlds.judge import blame, verdict_on
from rankdrill.worlds.told import Block, how_meant, if_longer, minority_first, told_of

__all__ = ["RUN_AGAIN", "Merged", "end_of", "ends_of", "merge", "phase_of", "uneventful"]

RUN_AGAIN = "to run it again"
AS_PLANNED = "what the plan did"
HOW_TO_MEAN_IT = "contracts=False on the ranks marker, or --no-contracts for all tests"
HOW_NOT_TO_BE_STRICT = 'contracts=True where "strict" or --strict-contracts asks for it; else '
HOW_TO_WAIT_LONGER = "deadline=… on the ranks marker, in seconds"
IF_DRAWN_ALIKE = "each rank drew random numbers of its own; if all are meant to draw the same"
HOW_TO_DRAW_ALIKE = 'seed="same" on the ranks marker'
IF_APART = "tmp_path is one directory for all ranks; if each is meant to have its own"
HOW_TO_BE_APART = """\
the fixture rank_tmp_path, or for fixtures that take tmp_path, beside the test
  @pytest.fixture
  def tmp_path(rank_tmp_path): return rank_tmp_path"""
_LEFT = frozenset({Ended.SKIPPED, Ended.XFAILED})


@dataclass(frozen=True)
class Merged:
    """One phase of one test on all ranks: how it ended together, and what to raise and show where it failed.

    `expected` is the reason why a mark that only the ranks know of, given while the test ran, expects the failure;
    `strict` says of one that passed in spite of such a mark that this is a failure.
    """

    ended: Ended
    reason: str = ""
    error: BaseException | None = None
    failure: MergedFailure | None = None
    expected: str | None = None
    strict: bool = False


def ends_of(rank: RankOutcome) -> Ends | None:
    """What the rank itself reported, None if it could not."""
    found = rank.value if rank.status is Status.RETURNED else getattr(rank.exception, "ends", None)
    return found if isinstance(found, Ends) else None


def end_of(rank: RankOutcome) -> PhaseEnd | None:
    """How the phase ended on a rank of what `phase_of` returned; None where it could not say."""
    if isinstance(rank.value, PhaseEnd):
        return rank.value
    ends = getattr(rank.exception, "ends", None)
    return ends.phases[0] if isinstance(ends, Ends) and ends.phases else None


def uneventful(outcome: Outcome) -> dict[When, tuple[PhaseEnd, ...]]:
    """How those phases ended on each rank that all passed with nothing to tell: all of them in most tests."""
    if outcome.unfired or not all(map(_tells_nothing, outcome.ranks)):
        return {}
    phases = zip(*(rank.value.phases for rank in outcome.ranks), strict=False)
    return {ends[0].when: ends for ends in phases if all(end.when == ends[0].when and end.uneventful for end in ends)}


def _tells_nothing(rank: RankOutcome) -> bool:
    """Whether there is nothing to tell of a rank but how its phases ended."""
    if rank.status is not Status.RETURNED or not isinstance(rank.value, Ends):
        return False
    told = rank.finding or rank.value.warnings or rank.stdout or rank.stderr or rank.notes or rank.by_plan
    return not told


def phase_of(outcome: Outcome, when: When, *, among_others: bool = False, last: bool = False) -> Outcome:
    """The part of `outcome` that is about phase `when`: each rank's status is that phase's.

    Where it is one of several (`among_others`), a rank that could not report is taken to have come through it: bodies
    are where ranks die and hang. What was found wrong with the run as a whole is told of the body, or of the `last`
    phase of a test that had passed until then.
    """
    ranks = tuple(_in_phase(rank, when, among_others) for rank in outcome.ranks)
    if when != "call" and not last and all(rank.status is Status.RETURNED for rank in ranks):
        ranks = tuple(_without_finding(rank, among_others) for rank in ranks)
    culprits, victims = blame(ranks)
    unfired = outcome.unfired if when == "call" else ()
    return replace(outcome, ranks=ranks, verdict=verdict_on(ranks), culprits=culprits, victims=victims, unfired=unfired)


def _without_finding(rank: RankOutcome, among_others: bool) -> RankOutcome:
    """The body is where it is told; but what the ranks of this phase alone have left undone is told once, here."""
    own = rank.finding is not None and rank.finding.kind is FindingKind.REQUEST_LEAK and not among_others
    return rank if own else replace(rank, finding=None)


def _in_phase(rank: RankOutcome, when: When, among_others: bool) -> RankOutcome:
    ends = ends_of(rank)
    could_not_begin = rank.status is Status.RAISED and when == "setup"
    if ends is None and among_others and not could_not_begin:
        passed = PhaseEnd(when, Ended.PASSED)
        return replace(rank, status=Status.RETURNED, value=passed, exception=None, stdout="", stderr="", notes=())
    if ends is None:
        return rank
    if among_others:
        rank = replace(rank, stdout="", stderr="", notes=())
    end = ends.of(when)
    if end is not None and end.raised:
        error = RankTestError(end.text, end.crash, end.error, Ends((end,)))
        return replace(rank, status=Status.RAISED, value=None, exception=error, site=end.site)
    # Of a test that could not begin there is nothing to say in later phases.
    return replace(rank, status=Status.RETURNED, value=end or PhaseEnd(when, Ended.PASSED), exception=None)


def merge(outcome: Outcome, where: tuple[str, int], run_again: str, deadline: float | None = None) -> Merged:
    """One result for a phase (see `phase_of`).

    `where` is the test's file and line, `run_again` the command line, `deadline` that of the test, in seconds, where it
    was what bounded the phase.
    """
    ends = {rank.rank: end for rank in outcome.ranks if (end := end_of(rank)) is not None}
    alive = [rank.rank for rank in outcome.ranks if not rank.by_plan]
    quiet = all(rank in ends and not ends[rank].raised for rank in alive)
    if quiet and not outcome.unfired and not outcome.findings:
        kinds = {end.ended for end in ends.values()}
        if len(kinds) > 1:
            return _disagreement(ends, where, run_again)
        first = ends[min(ends)] if ends else None
        if first is None:
            return Merged(Ended.PASSED)
        return Merged(first.ended, first.reason, strict=first.strict)
    return _failure(outcome, ends, where, run_again, deadline)


def _keeps_groups(outcome: Outcome) -> bool:
    return any(finding.kind is FindingKind.LEAKED_GROUP for finding in outcome.findings)


def _disagreement(ends: dict[int, PhaseEnd], where: tuple[str, int], run_again: str) -> Merged:
    headline = "ranks disagree: " + _who_did_what(ends)
    failure = MergedFailure(headline, (), (), where)
    failure.sections.append((RUN_AGAIN, run_again))
    return Merged(Ended.FAILED, error=RanksDisagree(headline), failure=failure)


def _who_did_what(ends: dict[int, PhaseEnd]) -> str:
    groups: dict[str, list[int]] = {}
    for rank, end in sorted(ends.items()):
        groups.setdefault(_verb(end), []).append(rank)
    return minority_first(groups)


def _failure(
    outcome: Outcome, ends: dict[int, PhaseEnd], where: tuple[str, int], run_again: str, deadline: float | None
) -> Merged:
    told = told_of(outcome, {rank: _verb(end) for rank, end in ends.items()})
    blocks = [*told.blocks, *_left_early(outcome, ends)]
    failure = MergedFailure(told.headline, blocks, told.victims, where)
    if struck_there := _as_planned(outcome):
        failure.sections.append((AS_PLANNED, struck_there))
    if (meant := how_meant(outcome)) is not None:
        strict = HOW_NOT_TO_BE_STRICT if _keeps_groups(outcome) else ""
        failure.sections.append((meant, strict + HOW_TO_MEAN_IT))
    if (longer := if_longer(outcome, deadline)) is not None:
        failure.sections.append((longer, HOW_TO_WAIT_LONGER))
    if not outcome.findings and any(rank in ends and ends[rank].drew for rank in told.shown):
        failure.sections.append((IF_DRAWN_ALIKE, HOW_TO_DRAW_ALIKE))
    if any(rank in ends and ends[rank].met for rank in told.shown):
        failure.sections.append((IF_APART, HOW_TO_BE_APART))
    failure.sections.append((RUN_AGAIN, run_again))
    error = _error(outcome, told.shown, told.headline)
    return Merged(Ended.FAILED, "", error, failure, _expected(told.shown, ends))


def _as_planned(outcome: Outcome) -> str:
    """The faults that struck, a line each, so that nobody looks in the code for what the plan did."""
    if outcome.plan is None:
        return ""
    found = struck(outcome.plan, [rank.fired for rank in outcome.ranks])
    return "\n".join(
        str(fault) if fault.where.rank is not None else f"{fault} ({name_ranks(on)})" for fault, on in found
    )


def _left_early(outcome: Outcome, ends: dict[int, PhaseEnd]) -> list[Block]:
    """Why a call was left out, where the test itself says so: that rank skipped, while others did not."""
    left: dict[str, list[int]] = {}
    for rank in sorted({rank for finding in outcome.findings for rank in finding.ranks}):
        if rank in ends and ends[rank].ended in _LEFT:
            left.setdefault(_verb(ends[rank]), []).append(rank)
    return [Block(minority_first(left))] if left else []


def _verb(end: PhaseEnd) -> str:
    return f"{end.ended}{f' ({end.reason})' if end.reason else ''}"


def _expected(shown: Sequence[int], ends: dict[int, PhaseEnd]) -> str | None:
    reasons = [ends[rank].reason for rank in shown if rank in ends and ends[rank].marked]
    return reasons[0] if reasons and len(reasons) == len(shown) else None


def _error(outcome: Outcome, shown: Sequence[int], headline: str) -> BaseException:
    """The exception the test fails with: the culprit's own where there is one, so that xfail(raises=…) sees it."""
    if outcome.harness:
        return TemplateDied(headline)
    if not shown:
        return FaultNotFired(headline)
    rank = outcome.ranks[shown[0]]
    if rank.finding is not None and shown[0] in rank.finding.ranks:
        return ContractBroken(headline, rank.rank)
    match rank.status:
        case Status.RAISED:
            return rank.error or WorldError(headline, rank.rank)
        case Status.DIED:
            return RankDied(headline, rank.rank)
        case Status.STUCK:
            return RankStuck(headline, rank.rank)
        case Status.RETURNED:
            return RanksDisagree(headline, rank.rank)
