"""N ranks' ends of one phase, merged: every way they can end together."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from rankdrill.errors import FaultNotFired, RankDied, RanksDisagree, RankStuck, WorldError
from rankdrill.plugin.commands import When
from rankdrill.plugin.ends import Ended, Ends, PhaseEnd, RankTestError
from rankdrill.plugin.merge import RUN_AGAIN, Merged, end_of, ends_of, merge, phase_of, uneventful
from rankdrill.plugin.shown import MergedFailure
from rankdrill.worlds import Outcome, RankOutcome, Status, Verdict
from rankdrill.worlds.judge import blame, verdict_on
from rankdrill.worlds.told import Block
from tests.worlds.ended import died, raised, returned, stuck, waits

WHERE = ("test_x.py", 7)
AGAIN = "python -m pytest test_x.py"


def passed(when: When = "call") -> PhaseEnd:
    return PhaseEnd(when, Ended.PASSED)


def failed(when: When = "call", text: str = "test_x.py:8: KeyError", **more: Any) -> PhaseEnd:
    return PhaseEnd(when, Ended.FAILED, text=text, crash="KeyError: 'k'", error=pickle.dumps(KeyError("k")), **more)


def xfailed(reason: str, *, marked: bool = True) -> PhaseEnd:
    return replace(failed(), ended=Ended.XFAILED, reason=reason, marked=marked)


def reported(rank: int, *phases: PhaseEnd, **more: Any) -> RankOutcome:
    """A rank that has told how `phases` ended, as it would: what was raised is raised."""
    try:
        return returned(rank, Ends(phases).given(), **more)
    except RankTestError as error:
        return raised(rank, error, **more)


def outcome(*ranks: RankOutcome, unfired: tuple[str, ...] = ()) -> Outcome:
    culprits, victims = blame(ranks)
    return Outcome(ranks, verdict_on(ranks), culprits, victims, unfired=unfired)


def merged(*ranks: RankOutcome, unfired: tuple[str, ...] = ()) -> Merged:
    """What the call of ranks that ran nothing but that comes to."""
    return merge(phase_of(outcome(*ranks, unfired=unfired), "call"), WHERE, AGAIN)


def shown(result: Merged) -> MergedFailure:
    assert result.failure is not None
    assert (result.failure.reprcrash.path, result.failure.reprcrash.lineno) == WHERE
    assert result.failure.reprcrash.message == result.failure.headline
    return result.failure


# ------------------------------------------------------------------------------------ what a rank has told


def test_what_a_rank_told_is_what_it_returned_or_raised() -> None:
    well, ill = Ends((passed(),)), Ends((passed("setup"), failed()))
    assert ends_of(returned(0, well)) is well
    assert ends_of(reported(0, *ill.phases)) == ill
    assert ends_of(returned(0, 3)) is None
    assert ends_of(raised(0, KeyError("k"))) is None
    assert ends_of(died(0)) is None
    assert ends_of(stuck(0, value=well)) is None


def test_a_phase_that_was_raised_is_found_in_the_error() -> None:
    assert end_of(returned(0, passed())) == passed()
    assert end_of(reported(0, failed())) == failed()
    assert end_of(raised(0, RankTestError("text", "crash", b"", Ends()))) is None
    assert end_of(raised(0, KeyError("k"))) is None
    assert end_of(died(0)) is None


# ------------------------------------------------------------------------------------------- nothing to tell

QUIET = reported(1, passed("setup"), PhaseEnd("call", Ended.PASSED, seconds=1.5))


def test_of_ranks_that_all_passed_quietly_there_is_how_each_did() -> None:
    found = uneventful(outcome(reported(0, passed("setup"), passed()), QUIET))
    assert found == {
        "setup": (passed("setup"), passed("setup")),
        "call": (passed(), PhaseEnd("call", Ended.PASSED, seconds=1.5)),
    }


@pytest.mark.parametrize(
    "other",
    [
        *(died(0), stuck(0, value=QUIET.value), raised(0, KeyError("k")), returned(0, 3), reported(0, failed())),
        returned(0, replace(QUIET.value, warnings=(("careful", "UserWarning", "test_x.py", 7),))),
        reported(0, passed("setup")),
        reported(0, PhaseEnd("call", Ended.SKIPPED, "not here")),
        reported(0, PhaseEnd("call", Ended.PASSED, properties=(("seen", 1),))),
        replace(QUIET, stdout="told"),
        replace(QUIET, stderr="told"),
        replace(QUIET, notes=("told",)),
        replace(QUIET, by_plan=True),
    ],
    ids=[
        *("died", "stuck", "raised", "returned something else", "failed", "warned", "did not come so far"),
        *("skipped", "has a property", "printed", "complained", "has a note", "is as planned"),
    ],
)
def test_one_rank_with_something_to_tell_is_enough(other: RankOutcome) -> None:
    assert "call" not in uneventful(outcome(other, QUIET))
    assert "call" not in uneventful(outcome(QUIET, other))


def test_a_fault_that_did_not_strike_is_something_to_tell() -> None:
    assert uneventful(outcome(QUIET, unfired=("no such step",))) == {}


def test_phases_that_not_all_ranks_came_to_are_not_put_beside_others() -> None:
    short = reported(0, passed("setup"), passed("teardown"))
    assert list(uneventful(outcome(short, reported(1, passed("setup"), passed(), passed("teardown"))))) == ["setup"]


# ------------------------------------------------------------------------------------------- one of several phases


def test_a_phase_that_ended_well_is_what_its_rank_returned() -> None:
    skipped = PhaseEnd("call", Ended.SKIPPED, "not here")
    part = phase_of(outcome(reported(0, passed("setup"), skipped, failed("teardown"))), "call")
    (rank,) = part.ranks
    assert (rank.status, rank.value, rank.exception) == (Status.RETURNED, skipped, None)
    assert (part.verdict, part.culprits, part.victims) == (Verdict.TOGETHER, (), ())


def test_a_phase_that_failed_is_raised_and_nothing_else_is_left_of_the_rank() -> None:
    one = reported(0, passed("setup"), failed(text="in the call"), failed("teardown", text="after"))
    part = phase_of(outcome(one, reported(1, passed("setup"), passed(), passed("teardown"))), "teardown")
    rank = part.ranks[0]
    assert isinstance(rank.exception, RankTestError)
    assert (rank.status, rank.value) == (Status.RAISED, None)
    assert (rank.exception.text, rank.exception.crash) == ("after", "KeyError: 'k'")
    assert repr(rank.error) == "KeyError('k')"
    assert rank.exception.ends == Ends((failed("teardown", text="after"),))
    assert part.ranks[1].value == passed("teardown")
    assert (part.verdict, part.culprits) == (Verdict.ASYMMETRIC, (0,))


def test_a_failed_phase_that_was_returned_is_raised_all_the_same() -> None:
    (rank,) = phase_of(outcome(returned(0, Ends((failed(),)))), "call").ranks
    assert (rank.status, rank.value, repr(rank.error)) == (Status.RAISED, None, "KeyError('k')")


def test_a_phase_that_did_not_take_place_is_passed() -> None:
    part = phase_of(outcome(reported(0, failed("setup"))), "teardown")
    assert (part.ranks[0].status, part.ranks[0].value, part.ranks[0].exception) == (
        Status.RETURNED,
        passed("teardown"),
        None,
    )


def test_a_rank_that_could_not_report_stays_what_it_is() -> None:
    ranks = died(0), stuck(1), raised(2, KeyError("k"))
    part = phase_of(outcome(*ranks), "call")
    assert part.ranks == ranks
    assert (part.verdict, part.culprits) == (Verdict.DIED, (0, 2, 1))


def test_victims_are_those_of_the_phase() -> None:
    whole = outcome(waits(0, 1), reported(1, passed("setup"), failed()), waits(2, 1))
    part = phase_of(whole, "call")
    assert (part.culprits, part.victims) == ((1,), (0, 2))
    part = phase_of(whole, "setup")
    assert (part.culprits, part.victims) == ((1,), (0, 2)), "rank 1 has left, and the others wait for it"


@pytest.mark.parametrize(("when", "told"), [("setup", ()), ("call", ("no such step",)), ("teardown", ())])
def test_a_fault_that_did_not_strike_is_told_once_with_the_call(when: When, told: tuple[str, ...]) -> None:
    assert phase_of(outcome(reported(0, passed()), unfired=("no such step",)), when).unfired == told


def test_among_others_who_could_not_report_came_through_and_what_it_printed_is_told_elsewhere() -> None:
    printed: dict[str, Any] = {"stdout": "out", "stderr": "err"}
    ranks = died(0, **printed), stuck(1, **printed), reported(2, passed("setup"), failed(), **printed)
    part = phase_of(outcome(*ranks), "setup", among_others=True)
    assert [(rank.status, rank.value, rank.exception) for rank in part.ranks] == [
        (Status.RETURNED, passed("setup"), None)
    ] * 3
    assert {rank.stdout + rank.stderr for rank in part.ranks} == {""}
    assert (part.verdict, part.culprits, part.victims) == (Verdict.TOGETHER, (), ())
    part = phase_of(outcome(waits(0, 1), died(1)), "setup", among_others=True)
    assert (part.verdict, part.victims) == (Verdict.TOGETHER, ())
    part = phase_of(outcome(*ranks), "teardown", among_others=True)
    assert [rank.value for rank in part.ranks] == [passed("teardown")] * 3
    assert {rank.stdout + rank.stderr for rank in phase_of(outcome(*ranks), "call").ranks} == {"outerr"}


def test_among_others_a_rank_that_could_not_begin_failed_in_its_setup() -> None:
    rank = raised(0, KeyError("k"), stdout="out")
    assert phase_of(outcome(rank), "setup", among_others=True).ranks == (rank,)
    (came_through,) = phase_of(outcome(rank), "call", among_others=True).ranks
    assert (came_through.value, came_through.exception) == (passed(), None)


# ------------------------------------------------------------------------------------------------------ merged


def test_all_passed_is_passed() -> None:
    assert merged(reported(0, passed()), reported(1, passed())) == Merged(Ended.PASSED)


def test_all_skipped_is_skipped_for_the_reason_of_the_first() -> None:
    ends = [PhaseEnd("call", Ended.SKIPPED, f"reason {rank}") for rank in range(2)]
    assert merged(*(reported(rank, end) for rank, end in enumerate(ends))) == Merged(Ended.SKIPPED, "reason 0")


@pytest.mark.parametrize("strict", [True, False])
def test_all_xpassed_is_as_strict_as_the_mark(strict: bool) -> None:
    end = PhaseEnd("call", Ended.XPASSED, "known", strict=strict)
    assert merged(reported(0, end), reported(1, end)) == Merged(Ended.XPASSED, "known", strict=strict)


def test_ranks_that_the_plan_ended_are_not_asked() -> None:
    assert merged(died(0, by_plan=True), reported(1, PhaseEnd("call", Ended.SKIPPED, "why"))) == Merged(
        Ended.SKIPPED, "why"
    )
    assert merged(died(0, by_plan=True), stuck(1, by_plan=True)) == Merged(Ended.PASSED)


def test_ranks_that_end_differently_disagree() -> None:
    ends = [passed(), PhaseEnd("call", Ended.SKIPPED, "not here"), passed()]
    result = merged(*(reported(rank, end) for rank, end in enumerate(ends)))
    told = "ranks disagree: rank 1 skipped (not here); ranks 0, 2 passed"
    assert (result.ended, result.reason, result.expected, result.strict) == (Ended.FAILED, "", None, False)
    assert isinstance(result.error, RanksDisagree)
    assert str(result.error) == told
    failure = shown(result)
    assert (failure.headline, list(failure.blocks), list(failure.victims), failure.sections) == (
        told,
        [],
        [],
        [("to run it again", "python -m pytest test_x.py")],
    )


def test_the_culprit_is_shown_its_victims_in_a_line_each() -> None:
    result = merged(waits(0, 1), reported(1, failed()), waits(2, 1))
    assert (result.ended, result.reason, result.strict) == (Ended.FAILED, "", False)
    assert repr(result.error) == "KeyError('k')", "its own, for xfail(raises=…)"
    failure = shown(result)
    assert failure.headline == "rank 1 failed: KeyError: 'k'"
    assert failure.blocks == [Block("rank 1 failed: KeyError: 'k'", "test_x.py:8: KeyError")]
    assert failure.victims == ["ranks 0, 2 wait in collective.barrier #0 on 'default' for rank 1"]
    assert failure.sections == [("to run it again", AGAIN)]


def test_two_culprits_are_both_shown_the_first_as_the_headline() -> None:
    result = merged(reported(0, failed(text="test_x.py:9: one"), at_ns=2), reported(1, failed(), at_ns=1))
    failure = shown(result)
    assert failure.headline == "rank 1 failed: KeyError: 'k'"
    assert [(block.heading, block.text) for block in failure.blocks] == [
        ("rank 1 failed: KeyError: 'k'", "test_x.py:8: KeyError"),
        ("rank 0 failed: KeyError: 'k'", "test_x.py:9: one"),
    ]


def test_one_that_died_says_all_in_the_headline() -> None:
    result = merged(reported(0, passed()), died(1))
    assert isinstance(result.error, RankDied)
    assert (str(result.error), result.error.rank) == ("rank 1 killed by SIGKILL before its first step", 1)
    failure = shown(result)
    assert (failure.headline, failure.blocks) == (str(result.error), [])


def test_one_that_is_stuck_is_told_with_its_stack() -> None:
    result = merged(reported(0, passed()), stuck(1, stack="in sleep"))
    told = "rank 1 was still running at the deadline, before its first step"
    assert isinstance(result.error, RankStuck)
    assert (str(result.error), result.error.rank) == (told, 1)
    assert shown(result).blocks == [Block(told, "in sleep")]
    assert [title for title, _ in shown(result).sections] == [RUN_AGAIN], "of a deadline that bounded nothing here"


def test_one_that_may_need_longer_is_told_how_to_get_it() -> None:
    result = merge(phase_of(outcome(reported(0, passed()), stuck(1)), "call"), WHERE, AGAIN, deadline=2.5)
    told = ("if that takes longer than the deadline of 2.5 s", "deadline=… on the ranks marker, in seconds")
    assert shown(result).sections == [told, (RUN_AGAIN, AGAIN)]


def test_one_that_waits_for_another_is_not_told_to_wait_longer() -> None:
    result = merge(phase_of(outcome(waits(0, 1), reported(1, passed())), "call"), WHERE, AGAIN, deadline=2.5)
    assert [title for title, _ in shown(result).sections] == [RUN_AGAIN]


def test_one_that_is_stopped_is_not_told_to_wait_longer() -> None:
    stopped = stuck(1, doing="stopped by a signal")
    result = merge(phase_of(outcome(reported(0, passed()), stopped), "call"), WHERE, AGAIN, deadline=2.5)
    assert [title for title, _ in shown(result).sections] == [RUN_AGAIN]


def test_one_that_left_is_told_with_what_the_others_wait_in() -> None:
    result = merged(waits(0, 1), reported(1, passed()), waits(2, 1))
    failure = shown(result)
    assert failure.headline == "missing call: rank 1 leaves out barrier #0 on 'default'"
    (block,) = failure.blocks
    assert "ranks 0, 2 wait in barrier #0 on 'default'" in str(block)
    assert failure.victims == [], "what they wait for has been told"


def test_who_failed_is_told_after_who_died() -> None:
    result = merged(died(0, at_ns=1), reported(1, failed(), at_ns=2))
    assert shown(result).headline == "rank 0 killed by SIGKILL before its first step"
    assert [block.heading for block in shown(result).blocks] == ["rank 1 failed: KeyError: 'k'"]


def test_ranks_of_which_nothing_is_known_have_failed() -> None:
    result = merge(Outcome((returned(0, "no end"),), Verdict.TOGETHER, (), ()), WHERE, AGAIN)
    assert (result.ended, str(result.error), shown(result).headline) == (Ended.FAILED, "failed", "failed")


def test_an_exception_that_the_controller_cannot_load_is_told_as_it_reads() -> None:
    result = merged(reported(0, replace(failed(), error=b"")))
    assert isinstance(result.error, RankTestError)
    part = outcome(replace(raised(0, KeyError("k")), exception=None))
    result = merge(part, WHERE, AGAIN)
    assert type(result.error) is WorldError
    assert (str(result.error), result.error.rank) == (shown(result).headline, 0)


def test_who_is_at_fault_by_plan_is_told_in_a_line_after_its_victims() -> None:
    result = merged(died(0, by_plan=True), waits(1, 0))
    failure = shown(result)
    assert failure.headline == "rank 1 waits in collective.barrier #0 on 'default' for rank 0"
    assert failure.blocks == [Block("rank 0 killed by SIGKILL before its first step, as planned")]
    assert failure.victims == []
    assert isinstance(result.error, RankStuck)
    assert result.error.rank == 1
    result = merged(died(0, by_plan=True, at_ns=1), died(1, at_ns=2), waits(2, 0))
    assert shown(result).headline == "rank 1 killed by SIGKILL before its first step"
    assert shown(result).victims == ["rank 2 waits in collective.barrier #0 on 'default' for rank 0"]


def test_faults_that_did_not_strike_fail_what_passed() -> None:
    result = merged(reported(0, passed()), unfired=("one did not", "nor two"))
    assert (result.ended, result.expected) == (Ended.FAILED, None)
    assert isinstance(result.error, FaultNotFired)
    assert str(result.error) == "one did not"
    failure = shown(result)
    assert (failure.headline, failure.blocks) == ("one did not", [Block("nor two")])


def test_faults_that_did_not_strike_are_told_after_who_failed() -> None:
    result = merged(reported(0, failed()), unfired=("one did not", "nor two"))
    assert repr(result.error) == "KeyError('k')"
    assert [block.heading for block in shown(result).blocks] == [
        "rank 0 failed: KeyError: 'k'",
        "one did not",
        "nor two",
    ]


# ----------------------------------------------------------------------------------------------- marks of ranks


def test_a_failure_that_a_mark_expects_on_every_culprit_is_expected() -> None:
    result = merged(reported(0, xfailed("known")), reported(1, xfailed("too")), reported(2, passed()))
    assert (result.ended, result.expected) == (Ended.FAILED, "known")


@pytest.mark.parametrize(
    "other",
    [reported(1, failed()), died(1), reported(1, xfailed("said so", marked=False))],
    ids=["fails", "dies", "calls"],
)
def test_a_failure_that_no_mark_expects_on_one_culprit_is_none(other: RankOutcome) -> None:
    assert merged(reported(0, xfailed("known")), other).expected is None
