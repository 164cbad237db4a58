"""Issuing another collective than the one that was asked for, with a record of its own in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.group_calls import patience_of, step_of
from rankdrill.boundary.work import TrackedWork
from rankdrill.ledger import State

if TYPE_CHECKING:
    from rankdrill.boundary import Boundary, Call, Proceed

__all__ = ["DATA", "give_back_number", "issue", "map_tensors", "tensors_of"]

DATA = ("tensors", "outputs")


def issue(call: Call, proceed: Proceed, boundary: Boundary) -> Any:
    """Issue `call` as a step of its own, with the group's next number; returns its work."""
    __tracebackhide__ = True
    group = call.args["group"]
    group.introduce()
    step = step_of(group, call.step.op, call.args)
    record = boundary.ledger.begin(step) if boundary.ledger else -1
    try:
        work = proceed(call._replace(step=step, record=record))
    except BaseException as error:
        boundary.fail(record, error)
        raise
    if work is None or isinstance(work, TrackedWork):
        boundary.mark(record, State.ENDED)
        return work
    return TrackedWork(work, boundary, record, patience_of(group, call.args))


def give_back_number(call: Call) -> None:
    """Let the group's next collective have the number of `call`, which is not issued."""
    call.args["group"].give_back(call.step, call.args)


def tensors_of(call: Call, names: tuple[str, ...] = DATA) -> Iterator[torch.Tensor]:
    """The tensors that a collective sends and receives."""
    for name in names:
        yield from flatten(call.args.get(name))


def map_tensors(value: Any, change: Any) -> Any:
    """`value` with every tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, change) for item in value)
    return value
