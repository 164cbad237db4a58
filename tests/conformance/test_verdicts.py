"""The judgement on what ranks saw, where no real gather of ours can be made to show it."""

from __future__ import annotations

import pytest

from rankdrill.conformance.case import Judgement
from rankdrill.conformance.on_rank import RankReport, Seen
from rankdrill.conformance.verdicts import Evidence, judge
from rankdrill.worlds import Death, Outcome, RankOutcome, Status, Verdict

RIGHT = Seen(0, 10)
LOST_2 = Seen(0, 10, "PeerLost", "rank 2 did not come", (2,))
LOST_SOMEBODY = Seen(0, 10, "PeerLost", "connection closed", ())
ENCODE_2 = Seen(0, 10, "EncodeError", "rank 2: unpicklable", (2,))


def outcome(*ranks: RankOutcome, unfired: tuple[str, ...] = ()) -> Outcome:
    return Outcome(ranks, Verdict.TOGETHER, (), (), unfired=unfired)


def returned(count: int) -> list[RankOutcome]:
    return [RankOutcome(rank, Status.RETURNED) for rank in range(count)]


def test_all_right_twice_is_right() -> None:
    seen = [RankReport(1, RIGHT, RIGHT, done=True) for _ in range(3)]
    judgement, why = judge(Evidence(outcome(*returned(3)), seen, struck=(2,)))
    assert (judgement, why) == (Judgement.RIGHT, "every rank received the right result")


def test_the_same_error_naming_the_struck_rank_is_together() -> None:
    seen = [RankReport(1, ENCODE_2, RIGHT, done=True) for _ in range(3)]
    judgement, why = judge(Evidence(outcome(*returned(3)), seen, struck=(2,)))
    assert (judgement, why) == (Judgement.TOGETHER, "every rank raised EncodeError, naming rank 2")


def test_an_error_naming_another_rank_is_unnamed() -> None:
    seen = [RankReport(1, ENCODE_2, RIGHT, done=True) for _ in range(3)]
    judgement, why = judge(Evidence(outcome(*returned(3)), seen, struck=(1,)))
    assert judgement is Judgement.UNNAMED
    assert "rank 1 was struck, and rank 0 blames rank 2" in why


def test_what_the_struck_rank_blames_counts_for_nothing() -> None:
    seen = [
        RankReport(1, LOST_2, RIGHT, done=True),
        RankReport(1, LOST_2, RIGHT, done=True),
        RankReport(1, LOST_SOMEBODY, RIGHT, done=True),
    ]
    assert judge(Evidence(outcome(*returned(3)), seen, struck=(2,)))[0] is Judgement.TOGETHER


def test_survivors_may_not_know_whom_they_lost() -> None:
    ranks = [*returned(2), RankOutcome(2, Status.DIED, death=Death(None, 9, 5))]
    seen = [RankReport(1, LOST_SOMEBODY, done=True), RankReport(1, LOST_2, done=True), RankReport(1)]
    assert judge(Evidence(outcome(*ranks), seen, struck=(2,), ended=(2,)))[0] is Judgement.TOGETHER


def test_the_death_of_another_than_the_struck_rank_is_died() -> None:
    ranks = [*returned(2), RankOutcome(2, Status.DIED, death=Death(None, 6, 5))]
    seen = [RankReport(1, LOST_2, done=True), RankReport(1, LOST_2, done=True), RankReport(1)]
    judgement, why = judge(Evidence(outcome(*ranks), seen, struck=(1,)))
    assert judgement is Judgement.DIED
    assert why.startswith("rank 2 killed by SIGABRT")


def test_a_survivor_that_returns_while_another_raises_is_asymmetric() -> None:
    ranks = [*returned(2), RankOutcome(2, Status.DIED, death=Death(None, 9, 5))]
    seen = [RankReport(1, RIGHT, done=True), RankReport(1, LOST_2, done=True), RankReport(1)]
    judgement, why = judge(Evidence(outcome(*ranks), seen, struck=(2,), ended=(2,)))
    assert (judgement, why) == (Judgement.ASYMMETRIC, "rank 1 raised PeerLost, rank 0 returned")


def test_errors_of_different_types_are_asymmetric() -> None:
    seen = [RankReport(1, ENCODE_2, done=True), RankReport(1, LOST_2, done=True), RankReport(1, LOST_2, done=True)]
    judgement, why = judge(Evidence(outcome(*returned(3)), seen, struck=(2,)))
    assert judgement is Judgement.ASYMMETRIC
    assert why == "ranks raised different types: rank 0 EncodeError; rank 1 PeerLost; rank 2 PeerLost"


def test_a_wrong_result_is_worse_than_a_rank_that_raises() -> None:
    seen = [RankReport(1, Seen(0, 1, wrong="result[0] is 1, not 2"), done=True), RankReport(1, LOST_2, done=True)]
    assert judge(Evidence(outcome(*returned(2)), seen, struck=(1,)))[0] is Judgement.WRONG


def test_a_fault_that_did_not_fire_is_no_pass() -> None:
    seen = [RankReport(1, RIGHT, RIGHT, done=True)] * 2
    judgement, why = judge(Evidence(outcome(*returned(2), unfired=("no such step",)), seen, struck=(1,)))
    assert (judgement, why) == (Judgement.UNFIRED, "no such step")


def test_a_rank_that_hangs_in_the_next_call_is_told_so() -> None:
    ranks = [RankOutcome(0, Status.RETURNED), RankOutcome(1, Status.STUCK)]
    seen = [RankReport(1, RIGHT, RIGHT, done=True), RankReport(1, RIGHT)]
    judgement, why = judge(Evidence(outcome(*ranks), seen))
    assert judgement is Judgement.HANG
    assert why.startswith("in the next call: rank 1 was still running")


def test_what_is_left_on_disk_is_a_leak() -> None:
    seen = [RankReport(1, RIGHT, RIGHT, done=True)] * 2
    judgement, why = judge(Evidence(outcome(*returned(2)), seen, files=("a/payload.part",)))
    assert (judgement, why) == (Judgement.LEAKED, "on disk: a/payload.part")


def test_only_of_a_peer_that_is_lost_nobody_need_be_named() -> None:
    nameless = Seen(0, 10, "StorageError", "no space left", ())
    seen = [RankReport(1, nameless, RIGHT, done=True) for _ in range(2)]
    judgement, why = judge(Evidence(outcome(*returned(2)), seen, struck=(1,)))
    assert (judgement, why) == (
        Judgement.UNNAMED,
        "rank 1 was struck, and rank 0 blames nobody: no space left",
    )


def test_a_wrong_result_of_the_next_call_is_as_wrong_as_one_of_the_first() -> None:
    wrong = Seen(0, 1, wrong="result[0] is 1, not 2")
    seen = [RankReport(1, RIGHT, RIGHT, done=True), RankReport(1, RIGHT, wrong, done=True)]
    judgement, why = judge(Evidence(outcome(*returned(2)), seen))
    assert (judgement, why) == (Judgement.WRONG, "in the next call: rank 1: result[0] is 1, not 2")


def test_where_every_rank_died_as_planned_nobody_is_left_to_see_anything() -> None:
    ranks = [RankOutcome(rank, Status.DIED, death=Death(None, 9, 5)) for rank in range(2)]
    judgement, why = judge(Evidence(outcome(*ranks), [RankReport(1), None], struck=(0, 1), ended=(0, 1)))
    assert (judgement, why) == (Judgement.TOGETHER, "every rank died, as planned")


def test_all_that_died_without_being_asked_to_are_named() -> None:
    ranks = [RankOutcome(rank, Status.DIED, death=Death(None, 9, 5)) for rank in range(3)]
    judgement, why = judge(Evidence(outcome(*ranks), [None] * 3, struck=(0,), ended=(0,)))
    assert judgement is Judgement.DIED
    assert why == "rank 1 killed by SIGKILL before its first step; rank 2 killed by SIGKILL before its first step"


def test_a_rank_whose_own_side_of_the_drill_raises_is_broken() -> None:
    ranks = [RankOutcome(rank, Status.RAISED, exception=KeyError(rank)) for rank in range(2)]
    judgement, why = judge(Evidence(outcome(*ranks), [None, None]))
    assert (judgement, why) == (Judgement.BROKEN, "rank 0 raised KeyError: 0; rank 1 raised KeyError: 1")


def test_all_wrong_results_are_told() -> None:
    seen = [RankReport(1, Seen(0, 1, wrong=f"result[{rank}] is missing"), done=True) for rank in range(2)]
    judgement, why = judge(Evidence(outcome(*returned(2)), seen))
    assert (judgement, why) == (Judgement.WRONG, "rank 0: result[0] is missing; rank 1: result[1] is missing")


def test_who_never_came_out_while_others_raised_is_told() -> None:
    ranks = [*returned(3), RankOutcome(3, Status.STUCK)]
    seen = [RankReport(1, ENCODE_2), RankReport(1, LOST_2), RankReport(1, ENCODE_2), RankReport(1)]
    judgement, why = judge(Evidence(outcome(*ranks), seen, struck=(2,)))
    assert judgement is Judgement.ASYMMETRIC
    assert why == "ranks 0, 1, 2 raised EncodeError, PeerLost, rank 3 never came out"


def test_where_some_returned_and_others_never_came_out_it_hangs() -> None:
    ranks = [*returned(1), RankOutcome(1, Status.STUCK), RankOutcome(2, Status.STUCK)]
    judgement, why = judge(Evidence(outcome(*ranks), [RankReport(1, RIGHT), RankReport(1), None]))
    assert judgement is Judgement.HANG
    assert why == (
        "rank 1 was still running at the deadline, before its first step; "
        "rank 2 was still running at the deadline, before its first step"
    )


@pytest.mark.parametrize("struck", [0, 12])
def test_an_error_that_says_on_whom_it_was_so_names_the_struck_rank(struck: int) -> None:
    blamed = Seen(0, 10, "DecodeError", "rank 5 sent what does not load (on ranks 0,12)", (5,))
    seen = [RankReport(1, blamed, RIGHT, done=True) for _ in range(13)]
    judgement, why = judge(Evidence(outcome(*returned(13)), seen, struck=(struck,)))
    assert (judgement, why) == (Judgement.TOGETHER, "every rank raised DecodeError, naming rank 5")
    assert judge(Evidence(outcome(*returned(13)), seen, struck=(3,)))[0] is Judgement.UNNAMED


def test_an_error_of_no_type_that_could_name_a_rank_is_unnamed() -> None:
    seen = [RankReport(1, Seen(0, 10, "KeyError", "'k'"))] * 2
    judgement, why = judge(Evidence(outcome(*returned(2)), seen, struck=(1,)))
    assert (judgement, why) == (Judgement.UNNAMED, "every rank raised KeyError, which names no rank: 'k'")


def test_an_error_where_nothing_was_broken_is_unnamed() -> None:
    judgement, why = judge(Evidence(outcome(*returned(2)), [RankReport(1, ENCODE_2)] * 2))
    assert judgement is Judgement.UNNAMED
    assert why == "nothing was broken, yet every rank raised EncodeError: rank 2: unpicklable"


def test_all_faults_that_did_not_fire_are_told() -> None:
    seen = [RankReport(1, RIGHT, RIGHT, done=True)]
    judgement, why = judge(Evidence(outcome(*returned(1), unfired=("no such step", "nor this")), seen, struck=(0,)))
    assert (judgement, why) == (Judgement.UNFIRED, "no such step; nor this")


def test_a_gather_whose_next_call_fails_is_spent() -> None:
    seen = [RankReport(1, ENCODE_2, ENCODE_2, done=True), RankReport(1, ENCODE_2, LOST_2, done=True)]
    judgement, why = judge(Evidence(outcome(*returned(2)), seen, struck=(2,)))
    assert judgement is Judgement.SPENT
    assert why == "rank 0: EncodeError: rank 2: unpicklable; rank 1: PeerLost: rank 2 did not come"


def test_the_next_call_is_not_asked_of_a_group_that_is_a_rank_short() -> None:
    ranks = [*returned(1), RankOutcome(1, Status.DIED, death=Death(None, 9, 5))]
    lost_1 = Seen(0, 10, "PeerLost", "rank 1 did not come", (1,))
    seen = [RankReport(1, lost_1, lost_1), RankReport(1)]
    assert judge(Evidence(outcome(*ranks), seen, struck=(1,), ended=(1,)))[0] is Judgement.TOGETHER


def test_all_that_hang_in_the_next_call_are_told() -> None:
    ranks = [RankOutcome(rank, Status.STUCK) for rank in range(2)]
    judgement, why = judge(Evidence(outcome(*ranks), [RankReport(1, RIGHT)] * 2))
    assert judgement is Judgement.HANG
    assert why == (
        "in the next call: rank 0 was still running at the deadline, before its first step; "
        "rank 1 was still running at the deadline, before its first step"
    )


def test_all_that_is_left_is_told_with_who_holds_it() -> None:
    ranks = [*returned(2), RankOutcome(2, Status.DIED, death=Death(None, 9, 5))]
    lost = Seen(0, 10, "PeerLost", "rank 2 did not come", (2,))
    seen = [RankReport(1, lost, done=True), RankReport(1, lost, left=("fd 7", "a thread"), done=True), None]
    judgement, why = judge(Evidence(outcome(*ranks), seen, struck=(2,), ended=(2,), files=("one", "two")))
    assert (judgement, why) == (Judgement.LEAKED, "on disk: one; on disk: two; rank 1: fd 7; rank 1: a thread")


def test_where_the_template_died_it_is_the_drill_that_failed() -> None:
    gone = "the process that ranks are forked from was killed by SIGKILL"
    ranks = [RankOutcome(rank, Status.DIED, death=Death(None, 9, 5), orphaned=gone) for rank in range(2)]
    assert judge(Evidence(outcome(*ranks), [None, None], struck=(1,))) == (Judgement.BROKEN, gone)
