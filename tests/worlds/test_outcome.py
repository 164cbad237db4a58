"""The one verdict on a run: when it is well, what it raises when it is not, and how each end reads."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.errors import FaultNotFired, RankDied, RankLeft, RankStuck, RankVictim, TemplateDied, WorldError
from rankdrill.faults import Plan
from rankdrill.ledger import State
from rankdrill.step import Site
from rankdrill.worlds import Death, Outcome, RankOutcome, Status, Verdict
from rankdrill.worlds.judge import blame, verdict_on
from rankdrill.worlds.outcome import RemoteTraceback
from rankdrill.worlds.rank_outcome import RenderedError
from tests.worlds import bodies
from tests.worlds.ended import BARRIER, OPEN, barrier, died, ledger, raised, returned, stuck, waits


def test_a_run_whose_fault_did_not_strike_is_not_ok_although_all_returned(two: World) -> None:
    outcome = two.run(bodies.rank, plan=Plan.parse("rank 0: kill after file.fsync"))
    assert outcome.values == [0, 1]
    assert not outcome.ok
    assert "rank 0: kill after file.fsync did not fire" in outcome.summary()
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    assert [type(error) for error in caught.value.exceptions] == [FaultNotFired]


def outcome(*ranks: RankOutcome, **more: Any) -> Outcome:
    culprits, victims = blame(ranks)
    return Outcome(ranks, verdict_on(ranks), culprits, victims, **more)


def errors_of(of: Outcome) -> tuple[BaseException, ...]:
    with pytest.raises(BaseExceptionGroup) as caught:
        of.unwrap()
    assert caught.value.message == of.summary()
    return caught.value.exceptions


SITE = Site("/train.py", 12, "step")
PASSED = replace(BARRIER, site=Site("/train.py", 7, "loss", "barrier"))


def of_death(how: str = "", site: Site | None = None, **more: Any) -> RankOutcome:
    return RankOutcome(1, Status.DIED, death=Death(None, 11, 1, how, site), **more)


@pytest.mark.parametrize(
    ("death", "text"),
    [
        (Death(3, None, 0), "exited with code 3"),
        (Death(None, 9, 0), "killed by SIGKILL"),
        (Death(None, 63, 0), "killed by signal 63"),
        (Death(None, 11, 0, site=SITE), "killed by SIGSEGV at /train.py:12 in step"),
        (Death(3, None, 0, "by os._exit", SITE), "exited with code 3, by os._exit at /train.py:12 in step"),
        (Death(None, 9, 0, "by the kernel"), "killed by SIGKILL, by the kernel"),
    ],
)
def test_a_death_reads_aloud(death: Death, text: str) -> None:
    assert str(death) == text


@pytest.mark.parametrize(
    ("rank", "text"),
    [
        (returned(1), "rank 1 returned"),
        (raised(1, KeyError("k")), "rank 1 raised KeyError: 'k'"),
        (died(1), "rank 1 killed by SIGKILL before its first step"),
        (died(1, ledger=ledger(OPEN)), "rank 1 killed by SIGKILL after file.open on '/x'"),
        (
            died(1, ledger=ledger(OPEN, last=State.BEGUN), by_plan=True),
            "rank 1 killed by SIGKILL in file.open on '/x', as planned",
        ),
        (
            of_death(site=SITE, ledger=ledger(PASSED)),
            "rank 1 killed by SIGSEGV at /train.py:12 in step, "
            "after collective.barrier #0 on 'default', at /train.py:7 in loss",
        ),
        (
            of_death("by the kernel", ledger=ledger(PASSED, OPEN)),
            "rank 1 killed by SIGSEGV, by the kernel, "
            "after collective.barrier #0 on 'default', at /train.py:7 in loss, then file.open on '/x'",
        ),
        (
            of_death(site=SITE, ledger=ledger(PASSED, last=State.BEGUN)),
            "rank 1 killed by SIGSEGV at /train.py:12 in step, "
            "in collective.barrier #0 on 'default', at /train.py:7 in loss",
        ),
        (
            of_death(site=PASSED.site, ledger=ledger(PASSED, last=State.BEGUN)),
            "rank 1 killed by SIGSEGV at /train.py:7 in loss, in collective.barrier #0 on 'default'",
        ),
        (
            died(1, orphaned="the template ended", ledger=ledger(OPEN)),
            "rank 1 went with the process that ranks are forked from, after file.open on '/x'",
        ),
        (raised(1, SystemExit(4), site=SITE), "rank 1 raised SystemExit: 4 at /train.py:12 in step"),
        (raised(1, SystemExit(4)), "rank 1 raised SystemExit: 4"),
        (raised(1, KeyError("k"), site=SITE), "rank 1 raised KeyError: 'k'"),
        (raised(1, AssertionError(), site=SITE), "rank 1 raised AssertionError at /train.py:12 in step"),
        (raised(1, AssertionError()), "rank 1 raised AssertionError"),
        (stuck(1, by_plan=True), "rank 1 stopped before its first step, as planned"),
        (waits(1, 0, by_plan=True), "rank 1 stopped in collective.barrier #0 on 'default', as planned"),
        (waits(1, 0), "rank 1 waits in collective.barrier #0 on 'default' for rank 0"),
        (waits(1), "rank 1 is in collective.barrier #0 on 'default', which every rank has reached"),
        (stuck(1), "rank 1 was still running at the deadline, before its first step"),
        (
            stuck(1, ledger=ledger(OPEN), cut=True),
            "rank 1 was still running when the run was ended, after file.open on '/x'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_end_of_a_rank_reads_aloud(rank: RankOutcome, text: str) -> None:
    assert str(rank) == text


def test_the_end_of_the_harness_comes_first_and_a_rank_that_failed_by_itself_is_still_told() -> None:
    gone = "the process that ranks are forked from was killed by SIGKILL"
    failed = outcome(died(0, orphaned=gone), raised(1, KeyError("k")), died(2, orphaned=gone))
    assert failed.harness == gone
    assert failed.summary() == f"died: {gone}; rank 1 raised KeyError: 'k'; victims: ranks 0, 2"
    assert [type(error) for error in errors_of(failed)] == [TemplateDied, KeyError, RankVictim, RankVictim]
    assert str(errors_of(failed)[0]) == gone
    # Of a phase that the rank had come through before, nothing is to be told.
    assert outcome(returned(0, orphaned=gone), returned(1)).harness == ""


def test_the_stack_of_who_died_goes_with_its_error() -> None:
    (with_one, without) = errors_of(outcome(died(0, stack="in step"), died(1)))
    assert with_one.__notes__ == ["in step"]
    assert not hasattr(without, "__notes__")


def test_a_run_is_ok_if_all_returned_but_those_that_the_plan_ended() -> None:
    well = outcome(returned(0, "a"), died(1, by_plan=True), returned(2, "c"))
    assert well.ok
    assert well.summary() == "3 ranks returned"
    assert well.unwrap() == ["a", None, "c"]
    assert not outcome(returned(0), died(1)).ok
    assert not outcome(returned(0), returned(1), unfired=("it did not fire",)).ok


def test_the_summary_names_the_first_culprit_the_others_and_the_victims() -> None:
    one = outcome(returned(0), raised(1, KeyError("k")))
    assert one.summary() == "asymmetric: rank 1 raised KeyError: 'k'"
    many = outcome(raised(0, ValueError("v"), 3), raised(1, KeyError("k"), 1), died(2, at_ns=2), waits(3, 0), stuck(4))
    two = outcome(raised(0, ValueError("v"), 2), raised(1, KeyError("k"), 1))
    assert two.summary() == "asymmetric: rank 1 raised KeyError: 'k'; also at fault: rank 0"
    assert many.summary() == "died: rank 1 raised KeyError: 'k'; also at fault: ranks 0, 2, 4; victims: rank 3"


def rank_one_receives(group: str) -> None:
    members = dist.new_group([1, 2]) if group else None
    if dist.get_rank() == 1:
        dist.recv(torch.ones(1), 2, group=members)


def test_an_assertion_on_a_run_shows_its_summary(two: World) -> None:
    outcome = two.run(lambda: dist.barrier())
    assert (str(outcome), repr(outcome)) == ("2 ranks returned", "<Outcome: 2 ranks returned>")
    assert len(repr(outcome.ranks[0].ledger)) < 40


@pytest.mark.parametrize(("group", "told"), [("", "peer=2"), ("1", "peer=rank 2")])
def test_the_peer_of_a_message_is_told_by_its_rank_in_the_world(group: str, told: str) -> None:
    with World(3) as world:
        outcome = world.run(rank_one_receives, group, deadline=20)
    record = outcome.ranks[1].ledger.last
    assert record is not None
    assert f" {told} " in str(record.step)


def test_the_summary_tells_of_the_first_fault_that_did_not_strike() -> None:
    assert outcome(returned(0), unfired=("one did not", "nor two")).summary() == "together: one did not"


def test_errors_that_are_alike_are_raised_once_with_all_their_ranks() -> None:
    ranks = [raised(rank, KeyError(rank // 2), traceback=f"at line {rank // 2}") for rank in range(4)]
    errors = errors_of(outcome(*ranks))
    assert [str(error) for error in errors] == ["0", "1"]
    assert [error.__notes__ for error in errors] == [["raised on ranks 0, 1"], ["raised on ranks 2, 3"]]
    causes = [error.__cause__ for error in errors]
    assert all(isinstance(cause, RemoteTraceback) for cause in causes)
    assert [str(cause) for cause in causes] == ["\nat line 0", "\nat line 1"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (raised(0, KeyError("k"), traceback="here"), raised(1, KeyError("k"), traceback="there")),
        (raised(0, KeyError("k")), raised(1, LookupError("k"))),
        (raised(0, ValueError("k"), traceback="here"), raised(1, TypeError("k"), traceback="here")),
        (raised(0, ValueError("one"), traceback="here"), raised(1, ValueError("two"), traceback="here")),
        (raised(0, ValueError("one")), raised(1, ValueError("two"))),
        (died(0), died(1)),
    ],
)
def test_errors_that_differ_stay_apart(one: RankOutcome, other: RankOutcome) -> None:
    assert len(errors_of(outcome(one, other))) == 2


def test_an_error_that_was_noted_before_is_noted_once() -> None:
    failed = outcome(raised(0, KeyError("k")), returned(1))
    errors_of(failed)
    (error,) = errors_of(failed)
    assert error.__notes__ == ["raised on rank 0"]


def test_every_end_that_is_no_return_raises_in_its_own_way() -> None:
    failed = outcome(died(0), stuck(1, stack="in sleep"), stuck(2), waits(3, 0), unfired=("one", "two"))
    errors = errors_of(failed)
    assert [type(error) for error in errors] == [
        RankDied,
        RankStuck,
        RankStuck,
        RankVictim,
        FaultNotFired,
        FaultNotFired,
    ]
    assert [error.rank for error in errors if isinstance(error, WorldError)] == [0, 1, 2, 3, None, None]
    assert [str(error) for error in errors] == [
        "rank 0 killed by SIGKILL before its first step",
        "rank 1 was still running at the deadline, before its first step",
        "rank 2 was still running at the deadline, before its first step",
        "rank 3 waits in collective.barrier #0 on 'default' for rank 0",
        "one",
        "two",
    ]
    assert errors[1].__notes__ == ["in sleep"]
    assert not hasattr(errors[2], "__notes__")


def test_who_left_is_told_with_the_call_and_those_that_wait_in_it() -> None:
    failed = outcome(waits(0, 1), returned(1), waits(2, 1))
    told = (
        "missing call: rank 1 leaves out barrier #0 on 'default'; ranks 0, 2 wait in barrier #0 on 'default'; "
        "rank 1 returned without a collective on 'default'"
    )
    error, *victims = errors_of(failed)
    assert isinstance(error, RankLeft)
    assert (str(error), error.rank) == (told, 1)
    assert [type(victim) for victim in victims] == [RankVictim, RankVictim]
    assert failed.describe(1) == told
    assert failed.describe(0) == "rank 0 waits in collective.barrier #0 on 'default' for rank 1"
    assert failed.summary() == f"hang: {told}; victims: ranks 0, 2"


def test_one_rank_that_waits_for_who_left_is_enough() -> None:
    failed = outcome(waits(0, 1), returned(1))
    assert failed.describe(1) == (
        "missing call, nobody in the majority: rank 1 leaves out barrier #0 on 'default'; "
        "rank 0 waits in barrier #0 on 'default'; rank 1 returned without a collective on 'default'"
    )


def test_after_a_planned_strike_who_left_speaks_for_itself() -> None:
    failed = outcome(replace(waits(0, 1), fired=(0,)), replace(returned(1), fired=(1,)))
    assert failed.findings == ()
    assert failed.describe(1) == (
        "rank 1 returned without entering collective.barrier #0 on 'default', where rank 0 waits for it"
    )


def test_one_that_waits_for_others_says_nothing_of_who_left() -> None:
    failed = outcome(waits(0, 2), returned(1), raised(2, KeyError("k")))
    assert failed.describe(1) == "rank 1 returned while others failed"


def test_a_call_that_is_not_the_others_is_told_with_both() -> None:
    odd = barrier(0, op="all_reduce", fingerprint="float32[2] sum")
    failed = outcome(waits(0), waits(1, step=odd), waits(2))
    assert failed.culprits == (1,)
    assert failed.describe(1) == (
        "rank 1 is in collective.all_reduce #0 on 'default' (float32[2] sum), "
        "ranks 0, 2 in collective.barrier #0 on 'default'"
    )
    assert failed.describe(0) == "rank 0 is in collective.barrier #0 on 'default', which every rank has reached"


def test_an_odd_call_of_who_is_not_at_fault_is_not_told() -> None:
    odd = barrier(0, op="all_reduce", fingerprint="float32[2] sum")
    failed = outcome(waits(0, 3), waits(1, 3, step=odd), waits(2, 3), raised(3, KeyError("k")))
    assert failed.culprits == (3,)
    assert failed.describe(1) == "rank 1 waits in collective.all_reduce #0 on 'default' (float32[2] sum) for rank 3"


def test_a_rendered_error_reads_as_its_last_line_and_keeps_the_exception() -> None:
    error = RenderedError("all of it", "the last line", pickle.dumps(KeyError("k")), "more")
    assert error.args == ("all of it", "the last line", pickle.dumps(KeyError("k")), "more")
    assert (str(error), error.text) == ("the last line", "all of it")
    assert repr(error.original) == "KeyError('k')"
    assert repr(raised(0, error).error) == "KeyError('k')"
    assert pickle.loads(pickle.dumps(error)).args == error.args


@pytest.mark.parametrize("raw", [b"", b"no pickle", pickle.dumps("no exception")])
def test_a_rendered_error_whose_exception_cannot_be_had_stands_in_for_it(raw: bytes) -> None:
    error = RenderedError("all of it", "the last line", raw)
    assert error.original is error


def test_a_traceback_from_elsewhere_begins_a_line_of_its_own() -> None:
    traceback = RemoteTraceback("File x")
    assert (str(traceback), traceback.text, traceback.args) == ("\nFile x", "File x", ("File x",))


def test_the_verdict_is_the_word_before_the_colon() -> None:
    for verdict in Verdict:
        assert Outcome((raised(0, KeyError("k")),), verdict, (0,), ()).summary().startswith(f"{verdict.value}: rank 0")


MANY = 256
SCREEN = 40  # lines


def printed(of: Outcome) -> list[str]:
    """What Python prints where nobody catches it."""
    with pytest.raises(BaseExceptionGroup) as caught:
        of.unwrap()
    return "".join(traceback.format_exception(caught.value)).splitlines()


@pytest.mark.parametrize("ranks", [4, MANY])
@pytest.mark.parametrize("culprit", [returned(1), died(1), raised(1, KeyError("k"))], ids=["left", "died", "raised"])
def test_however_many_ranks_there_are_it_is_one_screen(culprit: RankOutcome, ranks: int) -> None:
    lines = printed(outcome(waits(0, 1), culprit, *(waits(rank, 1) for rank in range(2, ranks))))
    assert len(lines) <= SCREEN
    assert any(f"0, 2-{ranks - 1}" in line or "0, 2, 3" in line for line in lines)


def test_of_many_victims_those_that_suffer_alike_are_one_error() -> None:
    """Half of them wait for the culprit, the others for one of these."""
    first = [waits(rank, 1) for rank in (0, *range(2, MANY // 2))]
    second = [waits(rank, 0) for rank in range(MANY // 2, MANY)]
    error, *victims = errors_of(outcome(first[0], died(1), *first[1:], *second))
    assert isinstance(error, RankDied)
    assert [str(victim) for victim in victims] == [
        "ranks 0, 2-127 wait in collective.barrier #0 on 'default' for rank 1",
        "ranks 128-255 wait in collective.barrier #0 on 'default' for rank 0",
    ]
    assert [victim.rank for victim in victims if isinstance(victim, RankVictim)] == [0, 128]
