"""Whether a rank on which a test failed is fit for another: whether all that it did there has come to its end."""

from __future__ import annotations

from rankdrill.ledger import Record, State
from rankdrill.step import DEFAULT_GROUP, Kind
from rankdrill.worlds.rank_outcome import RankOutcome, RenderedError, Status

__all__ = ["raised_in_step"]

# What files, memory and clocks have to do with is no other rank's affair.
_SHARED = frozenset({Kind.COLLECTIVE, Kind.GROUP, Kind.STORE, Kind.SHM})


def raised_in_step(outcome: RankOutcome) -> bool:
    """Whether this rank has certainly left nothing half done between it and the others.

    Counts of the default group's collectives, which the world compares, show that ranks are in step there. Nothing
    shows it for other groups, nor for a store or shared memory of which one rank has done its part: where a failed
    test has touched those, the answer is no. A test that passed has come to the end of what it does with them.
    """
    if outcome.status is Status.RAISED:
        done = isinstance(outcome.exception, RenderedError)  # pytest's report of a phase, and nothing of ours
    else:
        done = outcome.status is Status.RETURNED
    ledger = outcome.ledger
    if not done or ledger.dropped or ledger.torn:
        return False
    return all(map(_ended, ledger.where(lambda kind, state: kind in _SHARED)))


def _ended(record: Record) -> bool:
    step = record.step
    return step.kind is Kind.COLLECTIVE and step.target == DEFAULT_GROUP and record.state is State.ENDED
