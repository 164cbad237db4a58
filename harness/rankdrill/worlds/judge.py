"""Who is at fault: culprits apart from victims, and one verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.diagnosis import odd_ones
from rankdrill.diagnosis.ddp import is_ddps_own
from rankdrill.errors import ContractBroken, GatherError, PeerLost
from rankdrill.worlds.failing_together import failed_together
from rankdrill.worlds.found import CHECKS, UNNOTICED, finding_on
from rankdrill.worlds.outcome import Verdict
from rankdrill.worlds.rank_outcome import RankOutcome, Status
from rankdrill.worlds.suffering import lost_another

__all__ = ["blame", "verdict_on"]


def verdict_on(ranks: Sequence[RankOutcome]) -> Verdict:
    """The one word for how `ranks` ended, those aside that the plan itself ended."""
    if all(rank.status is Status.RETURNED and rank.finding is None for rank in ranks):
        return Verdict.TOGETHER
    ranks = [rank for rank in ranks if not rank.by_plan]
    statuses = {rank.status for rank in ranks}
    if any(rank.finding is not None for rank in ranks):
        return Verdict.BROKEN
    if Status.DIED in statuses:
        return Verdict.DIED
    if Status.STUCK in statuses:
        return Verdict.HANG
    if len(statuses) > 1 or (Status.RAISED in statuses and len({type(rank.error) for rank in ranks}) > 1):
        return Verdict.ASYMMETRIC
    return Verdict.TOGETHER


def blame(ranks: Sequence[RankOutcome]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The culprits, first cause first, and the victims.

    A rank is a victim if all that happened to it is that it lost, or waited for, another rank. Where everybody
    only lost or waited, those whose call is another than the others' are the culprits, failing that those that others
    wait for and that have left, or given up waiting, or that others' errors name and that have returned, and failing
    that all of them; nobody, if the process that ranks
    are forked from took some of them along. What was found wrong with the run as a whole comes first.
    """
    failed = [rank for rank in ranks if rank.status is not Status.RETURNED]
    if not failed and all(rank.finding is None for rank in ranks):
        return (), ()
    finding = finding_on(ranks)
    if finding is not None:
        # What its check has missed is what a rank raised for.
        excused = CHECKS if finding.kind in UNNOTICED else ()
        more = [
            rank.rank
            for rank in failed
            if rank.rank not in finding.ranks and _erred(rank) and not isinstance(rank.error, excused)
        ]
        culprits = (*finding.ranks, *more)
        return culprits, tuple(rank.rank for rank in failed if rank.rank not in culprits)
    victims = [rank for rank in failed if _only_suffered(rank) or _told_of_another(rank, ranks)]
    causes = [rank for rank in failed if rank not in victims]
    returned = [rank for rank in ranks if rank.status is Status.RETURNED]
    missed = _missed(ranks, failed)
    left = [rank for rank in returned if _awaited(rank, ranks) or rank.rank in missed]
    if not causes and not any(rank.orphaned for rank in victims):
        odd = odd_ones(
            {rank.rank: rank.wait for rank in ranks if rank.wait is not None}, [rank.ledger for rank in ranks]
        )
        gone = [rank for rank in victims if rank.status is Status.RAISED and _awaited(rank, ranks)]
        causes = [rank for rank in ranks if rank.rank in odd] or left or gone or victims
        victims = [rank for rank in victims if rank not in causes]
    causes.sort(key=lambda rank: (not _named(rank, failed), rank.at_ns or float("inf"), rank.rank))
    return tuple(rank.rank for rank in causes), tuple(rank.rank for rank in victims)


def _only_suffered(rank: RankOutcome) -> bool:
    match rank.status:
        case Status.STUCK:
            return rank.wait is not None or rank.cut
        case Status.RAISED:
            return lost_another(rank.error)
        case Status.DIED:
            return bool(rank.orphaned)
        case Status.RETURNED:
            return False


def _told_of_another(rank: RankOutcome, ranks: Sequence[RankOutcome]) -> bool:
    """Whether it raised what all do because others failed, which say so of themselves."""
    failed = failed_together(rank.error, rank.ledger)
    told = [failed_together(ranks[each].error, ranks[each].ledger) for each in failed if each < len(ranks)]
    return bool(failed) and rank.rank not in failed and told == [failed] * len(failed)


def _erred(rank: RankOutcome) -> bool:
    """Whether it raised an error of its own, and not because the others did something else."""
    about_all = isinstance(rank.error, ContractBroken) or is_ddps_own(str(rank.error))
    return rank.status is Status.RAISED and not about_all and not _only_suffered(rank)


def _awaited(rank: RankOutcome, ranks: Sequence[RankOutcome]) -> bool:
    return any(other.wait and rank.rank in other.wait.missing for other in ranks)


def _missed(ranks: Sequence[RankOutcome], failed: Sequence[RankOutcome]) -> set[int]:
    """Whom gathers of the whole world gave up waiting for. Errors name ranks of their group, which may be another."""
    errors = [rank.error for rank in failed]
    named = {rank for error in errors if isinstance(error, PeerLost) for rank in error.ranks}
    return named if named | {rank.rank for rank in failed} == {rank.rank for rank in ranks} else set()


def _named(rank: RankOutcome, failed: Sequence[RankOutcome]) -> bool:
    # A gather's error, equal on all ranks, itself says which of them is at fault.
    return any(isinstance(other.error, GatherError) and rank.rank in other.error.ranks for other in failed)
