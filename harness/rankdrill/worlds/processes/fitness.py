"""Whether ranks are fit for another test: whether all that they did in this one has come to its end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rankdrill.ledger import Record, State, all_ended
from rankdrill.step import DEFAULT_GROUP, NO_SEQUENCE, Kind
from rankdrill.worlds.job import Job
from rankdrill.worlds.processes.watching import Ending, pending_messages
from rankdrill.worlds.rank_outcome import RankOutcome, RenderedError, Status

__all__ = ["fit_for_another"]

# What files, memory and clocks have to do with is no other rank's affair.
_SHARED = frozenset({Kind.COLLECTIVE, Kind.GROUP, Kind.STORE, Kind.SHM})


def fit_for_another(
    outcomes: Sequence[RankOutcome], endings: Collection[Ending], job: Job, device: str, *, once: bool = False
) -> bool:
    """Whether ranks on `device` whose `job` ended so, in rank order, can be given another test.

    Those that can run `once` only, as MPI's, which a process initialises once and which nobody can ask what is still
    under way in it, are not.
    """
    if job.prepares:
        return True
    returned = all(one.status is Status.RETURNED for one in outcomes)
    if once or not _in_step(outcomes, endings, job):
        return False
    if returned:
        return True
    # What has failed on a GPU may have failed for good.
    return job.may_raise and job.plan is None and device == "cpu" and all(map(_raised_in_step, outcomes))


def _in_step(outcomes: Sequence[RankOutcome], endings: Collection[Ending], job: Job) -> bool:
    if any(one.left or one.finding is not None for one in outcomes):
        return False
    ended = all_ended([one.ledger for one in outcomes]) or not any(_left_open(one, job) for one in outcomes)
    return ended and _settled_between(endings)


def _settled_between(endings: Collection[Ending]) -> bool:
    # Ranks whose counts of collectives differ are out of step: the next collective of one would meet an
    # older one of another. So it is with the groups that they make, and with messages that nobody has received.
    counts = {ending.account.collectives for ending in endings}
    groups = {ending.account.groups for ending in endings}
    return len(counts) == len(groups) == 1 and -1 not in counts and not pending_messages(endings)


def _left_open(outcome: RankOutcome, job: Job) -> bool:
    not_ended = outcome.ledger.where(lambda kind, state: kind is Kind.COLLECTIVE and state is not State.ENDED)
    return any(_spoils_the_next(record, job) for record in not_ended)


def _spoils_the_next(record: Record, job: Job) -> bool:
    if record.state is State.RAISED:  # a connection that failed once is gone
        return record.step.target == DEFAULT_GROUP or not job.in_step
    # A collective that all ranks have issued ends whether or not somebody asks for it, as DDP's reducer does not.
    # A send that nobody received would meet the next run's receive.
    return record.state is not State.ISSUED or record.step.sequence == NO_SEQUENCE


def _raised_in_step(outcome: RankOutcome) -> bool:
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
