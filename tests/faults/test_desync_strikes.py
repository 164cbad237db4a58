"""Strikes at collectives, on two real ranks of gloo: what is really sent, and that the ledger says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.ledger import LedgerView
from rankdrill.step import Kind
from rankdrill.worlds import Outcome, Status

BRIEF_S = 2.0  # for runs in which somebody waits in vain
PATIENT_S = 60.0
Run = Callable[..., Outcome]


def collectives(view: LedgerView) -> list[str]:
    """``all_reduce#0``, in order, without the groups' own records."""
    steps = [record.step for record in view if record.step.kind is Kind.COLLECTIVE]
    return [f"{step.op}#{step.sequence}" for step in steps]


def on_a_group(timeout: float, body: Callable[[Any], Any]) -> Any:
    """Run `body` on a group that gives up after `timeout`; returns what it returns, or the error's type name."""
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    try:
        return body(group)
    except RuntimeError as error:
        return type(error).__name__
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group(group)


def two_sums(timeout: float = BRIEF_S) -> Any:
    def body(group: Any) -> list[float]:
        first, second = torch.full((2,), dist.get_rank() + 1.0), torch.full((2,), 10.0)
        dist.all_reduce(first, group=group)
        dist.all_reduce(second, group=group)
        return [first[0].item(), second[0].item()]

    return on_a_group(timeout, body)


def test_nothing_is_changed_without_a_plan(run: Run) -> None:
    assert run(2, "", two_sums, PATIENT_S).unwrap() == [[3.0, 20.0], [3.0, 20.0]]


def test_skip_pairs_the_next_call_with_the_one_left_out(run: Run) -> None:
    outcome = run(2, "rank 1: skip at collective.all_reduce", two_sums)
    # Rank 1's second call met rank 0's first: 1 + 10. Rank 0's second met nobody.
    assert outcome.ranks[1].value == [2.0, 11.0]
    assert outcome.ranks[0].value != [3.0, 20.0]
    assert collectives(outcome.ranks[1].ledger)[-2:] == ["all_reduce#0", "all_reduce#0"]


def barrier_under_watch() -> str:
    dist.monitored_barrier()
    return "passed"


def test_skip_of_a_collective_that_has_no_handle(run: Run) -> None:
    assert run(1, "rank 0: skip at collective.monitored_barrier", barrier_under_watch).unwrap() == ["passed"]


def test_extra_is_one_call_ahead(run: Run) -> None:
    outcome = run(2, "rank 1: extra at collective.all_reduce", two_sums)
    # Rank 1's extra call met rank 0's second: 10 + 2. Rank 1's second met nobody.
    assert outcome.ranks[0].value == [3.0, 12.0]
    assert outcome.ranks[1].value not in ([3.0, 20.0], [3.0, 12.0])
    assert collectives(outcome.ranks[1].ledger)[-3:] == ["all_reduce#0", "all_reduce#1", "all_reduce#2"]


def test_swap_is_issued_after_the_next(run: Run) -> None:
    outcome = run(2, "rank 1: swap at collective.all_reduce", two_sums, PATIENT_S)
    # Rank 0: 1 + 10, then 10 + 2. Rank 1 did not wait for its first call, so it saw the second result in the end.
    assert outcome.ranks[0].value == [11.0, 12.0]
    assert outcome.ranks[1].value == [12.0, 11.0]
    assert collectives(outcome.ranks[1].ledger)[-3:] == ["all_reduce#0", "all_reduce#0", "all_reduce#1"]


def sum_of(dtype: torch.dtype) -> list[float]:
    tensor = torch.full((4,), dist.get_rank() + 1, dtype=dtype)
    dist.all_reduce(tensor)
    return [float(value) for value in tensor.tolist()]


def fingerprints(view: LedgerView) -> list[str]:
    return [record.step.fingerprint for record in view if record.step.op == "all_reduce"]


def test_wrong_shape_is_what_gloo_aborts_over(run: Run) -> None:
    outcome = run(2, "rank 1: wrong_shape(3) at collective.all_reduce", sum_of, torch.float32)
    assert {rank.status for rank in outcome.ranks} & {Status.DIED, Status.RAISED}
    assert fingerprints(outcome.ranks[1].ledger) == ["float32[4] sum", "float32[7] sum"]
    assert fingerprints(outcome.ranks[0].ledger) == ["float32[4] sum"]


def test_wrong_dtype_is_silent_garbage(run: Run) -> None:
    outcome = run(2, "rank 1: wrong_dtype at collective.all_reduce", sum_of, torch.float32)
    assert all(rank.status is Status.RETURNED for rank in outcome.ranks)
    assert outcome.ranks[0].value != [3.0] * 4
    assert fingerprints(outcome.ranks[1].ledger) == ["float32[4] sum", "int32[4] sum"]


def test_wrong_op_is_a_silently_wrong_sum(run: Run) -> None:
    outcome = run(2, "rank 1: wrong_op at collective.all_reduce", sum_of, torch.float32)
    assert [3.0] * 4 not in outcome.values
    assert fingerprints(outcome.ranks[1].ledger) == ["float32[4] sum", "float32[4] max"]


def rooted(op: str, timeout: float = BRIEF_S) -> Any:
    def body(group: Any) -> Any:
        rank = dist.get_rank()
        tensor = torch.full((2,), rank + 1.0)
        many = [torch.zeros(2) for _ in range(2)] if rank == 0 else None
        match op:
            case "broadcast":
                dist.broadcast(tensor, 0, group=group)
            case "reduce":
                dist.reduce(tensor, 0, group=group)
            case "gather":
                dist.gather(tensor, many, 0, group=group)
            case "scatter":
                dist.scatter(tensor, many, 0, group=group)
        return "done"

    return on_a_group(timeout, body)


@pytest.mark.parametrize("op", ["broadcast", "reduce", "gather", "scatter"])
def test_wrong_root(op: str, run: Run) -> None:
    assert run(2, "", rooted, op, PATIENT_S).unwrap() == ["done", "done"]
    outcome = run(2, f"rank 1: wrong_root at collective.{op}", rooted, op)
    assert outcome.values != ["done", "done"], "somebody must have waited in vain"
    step = [record.step for record in outcome.ranks[1].ledger.records if record.step.op == op][-1]
    assert "root=1" in step.fingerprint


def sums_on_two_groups(timeout: float = BRIEF_S) -> Any:
    one, other = (dist.new_group(timeout=timedelta(seconds=timeout)) for _ in range(2))
    tensor = torch.ones(1)
    try:
        dist.all_reduce(tensor, group=one)
        dist.all_reduce(tensor, group=other)
    except RuntimeError as error:
        return type(error).__name__
    return tensor.item()


def test_wrong_group(run: Run) -> None:
    assert run(2, "", sums_on_two_groups, PATIENT_S).unwrap() == [4.0, 4.0]
    outcome = run(2, "rank 1: wrong_group at collective.all_reduce", sums_on_two_groups)
    assert outcome.values != [4.0, 4.0]
    targets = [r.step.target for r in outcome.ranks[1].ledger if r.step.op == "all_reduce"]
    assert targets[0] != targets[1], "the record of what was done instead names the group it was done on"


def gathered() -> list[float]:
    mine = torch.full((2,), float(dist.get_rank()))
    lists = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(lists, mine)
    flat = torch.zeros(4)
    dist.all_gather_into_tensor(flat, mine)
    out = torch.zeros(1)
    dist.reduce_scatter_tensor(out, mine)
    swapped = torch.zeros(2)
    dist.all_to_all_single(swapped, mine)
    return [*torch.cat(lists).tolist(), *flat.tolist(), *out.tolist(), *swapped.tolist()]


def test_all_ranks_struck_alike_agree_again(run: Run) -> None:
    # The same wrong shape on every rank is no mismatch: the backend must take it.
    expected = run(2, "", gathered).unwrap()
    for op in ("all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"):
        outcome = run(2, f"rank *: wrong_shape at collective.{op}", gathered)
        assert all(rank.status is Status.RETURNED for rank in outcome.ranks), outcome.summary()
        assert any("[3]" in step or "[6]" in step or "[4]" in step for step in _shapes(outcome, op))
        if op == "all_gather":  # with the others, what belongs to whom depends on the shape
            assert outcome.values == expected


def _shapes(outcome: Outcome, op: str) -> list[str]:
    return [record.step.fingerprint for record in outcome.ranks[0].ledger if record.step.op == op][1:]


def kill_after() -> None:
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1))


def test_after_a_collective_is_when_it_is_over(run: Run) -> None:
    outcome = run(2, "rank 1: kill after collective.all_reduce", kill_after)
    assert outcome.ranks[1].status is Status.DIED
    done = [r.state.name for r in outcome.ranks[0].ledger if r.step.op == "all_reduce"]
    assert done[0] == "ENDED", "the first one was complete on the other rank"


def failing() -> str:
    try:
        dist.all_reduce(torch.ones(1))
    except (MemoryError, torch.cuda.OutOfMemoryError) as error:
        return type(error).__name__
    return "done"


def test_out_of_memory_in_a_collective(run: Run) -> None:
    assert run(1, "rank 0: oom at collective.all_reduce", failing).unwrap() == ["MemoryError"]
    assert run(1, "rank 0: cuda_oom at collective.all_reduce", failing).unwrap() == ["OutOfMemoryError"]
