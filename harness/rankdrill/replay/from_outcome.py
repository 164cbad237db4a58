"""From what came of a run to its score."""

from __future__ import annotations

from rankdrill.replay.from_ledgers import score_of
from rankdrill.replay.playing import verdict_of
from rankdrill.replay.score import End, Score
from rankdrill.step import Kind
from rankdrill.worlds import Outcome, RankOutcome, Status

__all__ = ["score_of_outcome"]


def score_of_outcome(outcome: Outcome) -> Score:
    """What the ranks of `outcome` did, to be played again; its verdict has to come out then."""
    views = {rank.rank: rank.ledger for rank in outcome.ranks}
    ends = {rank.rank: _end(rank, told=bool(outcome.findings)) for rank in outcome.ranks}
    finding = outcome.findings[0] if outcome.findings else None
    found = [side.ranks for side in finding.sides] if finding is not None else []
    sides = [side for side in found or (outcome.culprits, outcome.victims) if side]
    return score_of(views, len(outcome.ranks), verdict_of(outcome), ends, sides, None, finding)


def _end(rank: RankOutcome, *, told: bool) -> End:
    is_open = rank.ledger.last_open
    match rank.status:
        case Status.RETURNED:
            return End("returned")
        case Status.RAISED if rank.finding is None:
            return End("raised", text=f"{type(rank.error).__name__}: {rank.error}".splitlines()[0])
        case Status.DIED if rank.death is not None and rank.death.signal is not None:
            return End("killed", code=rank.death.signal)
        case Status.DIED if rank.death is not None:
            return End("exited", code=rank.death.code or 0)
        case Status.STUCK if rank.finding is None and (
            is_open is None or (is_open.step.kind is Kind.FILE and not told)
        ):
            return End("elsewhere", text=rank.doing)
    return End()
