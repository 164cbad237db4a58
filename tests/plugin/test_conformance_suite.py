"""`conformance` in somebody's test file: tests that one can select, and what is not promised does not fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rankdrill.conformance import Adapter, Promise, conformance
from rankdrill.conformance.kit.suite import described
from rankdrill.errors import UsageError
from tests.plugin.conftest import Ran

SOURCE = """
from rankdrill.conformance import conformance

def mine(payload):
    received = [None] * dist.get_world_size()
    dist.all_gather_object(received, payload)
    return [each.encode("ascii", "replace").decode() if isinstance(each, str) else each for each in received]

TestMine = conformance(mine, promises={"right", "clean"}, ranks=(2,))
"""


def test_one_test_for_each_question_named_for_it(run: Callable[..., Ran]) -> None:
    names = ["a small dict-2ranks", "text beyond ASCII-2ranks", "one half alone", "after calls that worked-2ranks"]
    ran = run(SOURCE, "-k", " or ".join(f"({' and '.join(name.split('-')[0].split())})" for name in names), "-rxX")
    ran.result.assert_outcomes(passed=2, failed=1, xfailed=1)
    failure = ran.failure("test_right[text beyond ASCII-2ranks]")
    assert "not right: text beyond ASCII, 2 ranks" in failure
    assert "call 1 of 2: wrong, on rank 0: result[0] is 'na?ve caf?', not 'naïve café'" in failure
    assert "(torch.distributed.all_gather_object comes through this)" in failure
    assert "XFAIL" in ran.screen
    assert "not promised" in ran.screen


@pytest.mark.parametrize(("promised", "outcome", "times"), [("right", "failed", 8), ("clean", "xfailed", 3)])
def test_of_a_promise_that_is_broken_again_and_again_no_more_is_asked(
    run: Callable[..., Ran], promised: str, outcome: str, times: int
) -> None:
    ran = run(
        f"""
from rankdrill.conformance import conformance

TestWrong = conformance(lambda payload: [str(payload)], promises={{"{promised}"}}, ranks=(2,))
""",
        "-k",
        "right",
        "-rs",
    )
    outcomes = ran.result.parseoutcomes()
    assert outcomes[outcome] == times
    assert outcomes["skipped"] > 8
    assert f"{times} answers were wrong before; to be asked all the same, select it with -k" in ran.screen


def test_a_gather_that_raises_whatever_it_is_asked_is_asked_little(run: Callable[..., Ran]) -> None:
    ran = run(
        """
from rankdrill.conformance import conformance

def only_on_a_gpu(payload):
    assert dist.get_backend() == "nccl"

TestWrong = conformance(only_on_a_gpu, promises={"right", "apart"}, ranks=(2,))
""",
        "-k",
        "right or apart",
    )
    outcomes = ran.result.parseoutcomes()
    assert outcomes["failed"] == 5
    assert outcomes["skipped"] > 20
    failure = ran.failure("test_apart[all that was sent and received is changed-2ranks]")
    assert 'in only_on_a_gpu: assert dist.get_backend() == "nccl"' in failure


def test_one_that_is_wrong_in_one_way_whatever_it_is_asked_is_asked_little_and_may_be_clean(
    run: Callable[..., Ran],
) -> None:
    ran = run(
        """
from rankdrill.conformance import conformance

TestWrong = conformance(lambda payload: [payload], promises={"right", "repeatable", "clean"}, ranks=(2,))
""",
        "-k",
        "right or repeatable or (clean and worked)",
        "-rs",
    )
    outcomes = ran.result.parseoutcomes()
    assert outcomes["failed"] == 4 + 1
    assert outcomes["passed"] == 1
    assert "what its own entry alone would give" in ran.failure("test_repeatable[12 calls in a row-2ranks]")


def test_one_that_breaks_the_same_contract_whatever_it_is_asked_is_asked_little(run: Callable[..., Ran]) -> None:
    ran = run(
        """
import torch
from rankdrill.conformance import conformance

def never_waited_for(tensor):
    received = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(received, tensor, async_op=True)
    dist.barrier()
    return received

TestWrong = conformance(never_waited_for, takes="equal tensors", promises={"right", "repeatable"}, ranks=(2,))
""",
        "-k",
        "right or repeatable",
    )
    outcomes = ran.result.parseoutcomes()
    assert outcomes["failed"] == 4 + 1
    assert "never waited for all_gather #0" in ran.failure("test_repeatable[12 calls in a row-2ranks]")


def test_one_that_raises_now_and_then_is_asked_all(run: Callable[..., Ran]) -> None:
    ran = run(
        """
from rankdrill.conformance import conformance

def of_dicts(payload):
    received = [None] * dist.get_world_size()
    dist.all_gather_object(received, payload)
    assert all(isinstance(each, dict) for each in received)
    return received

TestWrong = conformance(of_dicts, promises={"right"}, ranks=(2,))
""",
        "-k",
        "right and (small or directory or items or falsy or None)",
    )
    outcomes = ran.result.parseoutcomes()
    assert (outcomes["failed"], "skipped" in outcomes) == (5, False)


def test_an_adapter_promises_what_it_says_or_what_is_said_beside_it() -> None:
    adapter = described(lambda payload: [payload], promises={"right"})
    assert described(adapter).promises == {Promise.RIGHT}
    assert described(adapter, promises={"groups"}).promises == {Promise.GROUPS}


@pytest.mark.parametrize("says", [{"gives": "dst"}, {"takes": "lists"}, {"room": 100}])
def test_beside_an_adapter_nothing_is_said_that_it_says_itself(says: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(says))}= is said beside an Adapter"):
        described(Adapter("mine", lambda payload, setting: [payload]), **says)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ({"gives": "lists"}, "gives='lists' is not known; choose from list, dict, concatenated, stacked, sum"),
        ({"takes": "everything"}, "takes='everything' is not known; choose from objects, functions, dicts"),
        ({"promises": {"wright"}}, "'wright' is none; there are right, repeatable"),
    ],
)
def test_what_it_does_not_know_it_refuses(says: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told.replace("(", r"\(")):
        conformance(lambda payload: [payload], **says)  # type: ignore[arg-type]


def test_what_is_no_gather_is_refused() -> None:
    with pytest.raises(UsageError, match="3 is no gather; give a function of a payload, or an Adapter"):
        conformance(3)  # type: ignore[arg-type]
