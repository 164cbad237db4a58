"""Who is at fault, where real ranks would show it only now and then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rankdrill.errors import EncodeError, PeerLost, RankFailure
from rankdrill.worlds import RankOutcome, Verdict
from rankdrill.worlds.judge import blame, verdict_on
from tests.worlds.ended import BARRIER, barrier, died, ledger, raised, returned, stuck, waits

LOST = PeerLost("gather", (), "")


def test_one_that_died_is_a_cause_before_one_that_never_ended() -> None:
    assert blame([stuck(0), died(1, at_ns=500), raised(2, KeyError("first"), 400)]) == ((2, 1, 0), ())


@pytest.mark.parametrize(
    ("ranks", "verdict"),
    [
        ([returned(0), returned(1)], Verdict.TOGETHER),
        ([raised(0, KeyError(1)), raised(1, KeyError(2))], Verdict.TOGETHER),
        ([raised(0, KeyError(1)), raised(1, IndexError(1))], Verdict.ASYMMETRIC),
        ([raised(0, KeyError(1)), returned(1)], Verdict.ASYMMETRIC),
        ([stuck(0), returned(1)], Verdict.HANG),
        ([stuck(0), stuck(1)], Verdict.HANG),
        ([stuck(0), died(1), returned(2)], Verdict.DIED),
        ([returned(0), died(1, by_plan=True)], Verdict.TOGETHER),
        ([returned(0), stuck(1, by_plan=True), raised(2, KeyError(1))], Verdict.ASYMMETRIC),
        ([died(0, by_plan=True)], Verdict.TOGETHER),
    ],
)
def test_the_worst_end_is_the_verdict_but_for_ends_that_were_planned(
    ranks: Sequence[RankOutcome], verdict: Verdict
) -> None:
    assert verdict_on(ranks) is verdict


@pytest.mark.parametrize(
    "error",
    [
        LOST,
        RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"),
        RuntimeError("Connection was reset"),
        RuntimeError("connect: connection refused"),
        RuntimeError("write: Broken pipe"),
        RuntimeError("Timed out waiting 1000ms for recv operation to complete"),
        RuntimeError("wait timeout"),
        RuntimeError("Socket Closed"),
        RuntimeError("Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server crash?"),
        RuntimeError("the communicator was aborted"),
    ],
    ids=str,
)
def test_who_only_lost_another_rank_is_its_victim(error: BaseException) -> None:
    assert blame([raised(0, error, 1), raised(1, KeyError("cause"), 2)]) == ((1,), (0,))


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), ValueError("timed out"), OSError("broken pipe")])
def test_an_error_of_its_own_makes_a_cause(error: BaseException) -> None:
    assert blame([raised(0, error, 1), raised(1, KeyError("later"), 2)]) == ((0, 1), ())


def test_who_waits_or_was_cut_off_is_a_victim_who_just_runs_is_a_cause() -> None:
    ranks = [waits(0, 3), stuck(1, cut=True), stuck(2), returned(3)]
    assert blame(ranks) == ((2,), (0, 1))


def test_where_everybody_waits_those_that_left_are_at_fault() -> None:
    assert blame([waits(0, 2), waits(1, 2), returned(2), returned(3)]) == ((2,), (0, 1))


def test_who_gave_up_waiting_is_at_fault_before_those_that_wait_for_it() -> None:
    assert blame([raised(0, RuntimeError("Wait timeout")), waits(1, 0), waits(2, 0)]) == ((0,), (1, 2))


def test_who_has_left_is_not_at_fault_where_somebody_raised_first() -> None:
    assert blame([waits(0, 1), returned(1), raised(2, KeyError("cause"))]) == ((2,), (0,))


def test_a_rank_for_which_nobody_waits_any_more_is_not_at_fault() -> None:
    """Waits with nobody missing: all are in the call, and the transport under them is broken."""
    assert blame([waits(0), waits(1), returned(2)]) == ((0, 1), ())


def test_where_all_have_only_lost_each_other_all_are_at_fault() -> None:
    assert blame([raised(0, LOST, 2), raised(1, LOST, 1), returned(2)]) == ((1, 0), ())


def test_a_call_that_is_not_the_others_is_at_fault_before_anybody_that_left() -> None:
    odd = barrier(0, op="all_reduce", fingerprint="float32[2] sum")
    ranks = [waits(0, 3), waits(1, 3, step=odd), waits(2, 3), returned(3, ledger=ledger(BARRIER))]
    assert blame(ranks) == ((1,), (0, 2))


def test_a_call_is_compared_where_a_rank_waits_and_nowhere_else() -> None:
    odd = ledger(barrier(0, op="all_reduce", fingerprint="float32[2] sum"))
    assert blame([raised(0, LOST), raised(1, LOST, ledger=odd)]) == ((0, 1), ())
    ranks = [waits(0, 1, step=barrier(1)), returned(1, ledger=odd), waits(2, 1, step=barrier(1))]
    assert blame(ranks) == ((1,), (0, 2))


def test_who_returned_is_at_fault_where_a_gather_gave_up_waiting_for_it() -> None:
    lost = PeerLost("all_gather_object", (RankFailure(2, "did not come within 1 s"),))
    assert blame([raised(0, lost), raised(1, lost), returned(2)]) == ((2,), (0, 1))
    assert blame([raised(0, lost), raised(1, lost), returned(2), raised(3, KeyError("own"))]) == ((3,), (0, 1))
    of_a_group = [raised(0, lost), raised(1, lost), returned(2), returned(3)]
    assert blame(of_a_group) == ((0, 1), ())  # rank 2 of what group, nobody can say


def test_whom_a_gather_names_comes_first_then_who_ended_first() -> None:
    named = EncodeError("gather", (RankFailure(2, "unpicklable"),))
    ranks = [raised(0, named, 10), raised(1, named, 20), raised(2, named, 30), raised(3, named, 10)]
    assert blame(ranks) == ((2, 0, 3, 1), ())


def test_the_death_of_whoever_ended_first_is_the_first_cause() -> None:
    assert blame([died(0, at_ns=30), died(1, at_ns=10), stuck(2), died(3, at_ns=20)]) == ((1, 3, 0, 2), ())


def test_nobody_is_at_fault_where_the_template_took_ranks_along() -> None:
    gone = died(0, orphaned="it was killed")
    assert blame([gone, died(1, orphaned="it was killed")]) == ((), (0, 1))
    assert blame([gone, waits(1, 0), raised(2, LOST), returned(3)]) == ((), (0, 1, 2))
    assert blame([gone, returned(1)]) == ((), (0,))
    assert blame([gone, raised(1, KeyError("its own"))]) == ((1,), (0,))
    assert blame([gone, died(1)]) == ((1,), (0,)), "it had died before"
